/* lost.c: what happens when pages of a mapped model file cannot be read any more, because somebody shortened the file
 * or its disk failed. Reading them raises SIGBUS; nothing can be computed then, so the process says which file it is
 * and ends. Owns the list of mapped files, the list of unfinished files to remove, and the handler, which is
 * installed for a program that asks for it. A SIGBUS elsewhere does what it did before.
 *
 * The handler may interrupt any instruction of any thread: it calls async-signal-safe functions alone, and finds
 * every entry of the list whole. Entries are reused, never freed. The caller sees to it that one thread at a time
 * changes the list. */
#define _GNU_SOURCE
#include "host.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct watch {
    _Atomic(uintptr_t) start, end; /* the mapped bytes; start 1, end 1: a file to remove; start 0: not in use */
    char *text;                    /* the line to say, or the file's name */
    struct watch *next;
} watch;

static _Atomic(watch *) watches;
static struct sigaction before;
static atomic_flag told = ATOMIC_FLAG_INIT;

static void remove_unfinished(void)
{
    for (watch *w = atomic_load(&watches); w; w = w->next)
        if (atomic_load(&w->start) == 1)
            unlink(w->text);
}

static void lost(int number, siginfo_t *info, void *context)
{
    (void)context;
    uintptr_t at = (uintptr_t)info->si_addr;
    int raised = info->si_code > 0; /* by the machine, not sent by a process */
    for (watch *w = atomic_load(&watches); raised && w; w = w->next) {
        uintptr_t start = atomic_load(&w->start), end = atomic_load(&w->end);
        if (start <= 1 || at < start || at >= end)
            continue;
        if (atomic_flag_test_and_set(&told))
            for (;;)
                pause(); /* another thread says it, and ends the process */
        remove_unfinished();
        if (write(STDERR_FILENO, w->text, strlen(w->text)) < 0)
            _exit(1); /* nowhere to say it */
        _exit(1);
    }
    sigaction(number, &before, NULL);
    if (!raised)
        raise(number);
    /* else the instruction is tried once more, and meets what stood there before */
}

void ie_on_lost_pages(void)
{
    static int installed;
    struct sigaction action = {.sa_sigaction = lost, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    if (!installed)
        installed = sigaction(SIGBUS, &action, &before) == 0;
}

static void *add(uintptr_t start, uintptr_t end, const char *text)
{
    char *copy = strdup(text);
    watch *w = atomic_load(&watches);
    while (w && atomic_load(&w->start) != 0)
        w = w->next;
    watch *fresh = w ? w : calloc(1, sizeof *w);
    if (!copy || !fresh) {
        free(copy);
        if (!w)
            free(fresh);
        return NULL;
    }
    free(fresh->text);
    fresh->text = copy;
    atomic_store(&fresh->end, end);
    atomic_store(&fresh->start, start);
    if (!w) {
        fresh->next = atomic_load(&watches);
        atomic_store(&watches, fresh);
    }
    return fresh;
}

void *ie_watch_pages(uint64_t start, int64_t bytes, const char *line)
{
    return add((uintptr_t)start, (uintptr_t)start + (uintptr_t)bytes, line);
}

void *ie_watch_unfinished(const char *path) { return add(1, 1, path); }

void ie_unwatch(void *entry)
{
    if (entry)
        atomic_store(&((watch *)entry)->start, 0);
}
