/* Stackful coroutines: save the callee-saved registers, change the stack, restore. */
#define _GNU_SOURCE
#include "host.h"
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__x86_64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".globl coroutine_switch\n"
        ".hidden coroutine_switch\n"
        ".type coroutine_switch, @function\n"
        "coroutine_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".globl coroutine_entry\n"
        ".hidden coroutine_entry\n"
        "coroutine_entry:\n"
        "  movq %r12, %rdi\n"
        "  callq *%r13\n"
        "  ud2\n");
HIDDEN void coroutine_entry(void);
void coroutine_start(Coroutine *c, void (*run)(void *), void *argument) {
    void **top = (void **)(c->stack + STACK_BYTES - 64);
    /* coroutine_entry begins with what is above its address: a multiple of 16, as calls want it. */
    *--top = 0;
    *--top = 0;
    *--top = (void *)coroutine_entry;
    top -= 6;
    top[0] = top[1] = 0;
    top[2] = (void *)run;
    top[3] = argument;
    top[4] = top[5] = 0;
    c->sp = top;
}
#elif defined(__aarch64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".globl coroutine_switch\n"
        ".hidden coroutine_switch\n"
        ".type coroutine_switch, %function\n"
        "coroutine_switch:\n"
        "  sub sp, sp, #160\n"
        "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n  stp x25, x26, [sp, #48]\n"
        "  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n"
        "  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
        "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
        "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n  ldp x25, x26, [sp, #48]\n"
        "  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
        "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
        "  add sp, sp, #160\n  ret\n"
        ".globl coroutine_entry\n"
        ".hidden coroutine_entry\n"
        "coroutine_entry:\n"
        "  mov x0, x20\n  blr x19\n  brk #1\n");
HIDDEN void coroutine_entry(void);
void coroutine_start(Coroutine *c, void (*run)(void *), void *argument) {
    void **top = (void **)(c->stack + STACK_BYTES - 64 - 160);
    for (int i = 0; i < 20; i++) top[i] = 0;
    top[0] = (void *)run;
    top[1] = argument;
    top[11] = (void *)coroutine_entry;
    c->sp = top;
}
#else
#error "coroutines are written for x86-64 and aarch64"
#endif

/* Stacks are kept for the next wave; their pages are committed only where a kernel reaches. */
static u8 **spare;
static u32 spares, room;

u8 *stack_take(void) {
    if (spares) return spare[--spares];
    void *p = mmap(0, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return 0;
    mprotect(p, 4096, PROT_NONE);
    return p;
}
void stack_give(u8 *stack) {
    if (spares == room) {
        u8 **more = realloc(spare, (room + 64) * sizeof *spare);
        if (!more) { munmap(stack, STACK_BYTES); return; }
        spare = more;
        room += 64;
    }
    spare[spares++] = stack;
}
