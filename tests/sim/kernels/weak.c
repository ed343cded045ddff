// One kernel for each way in which memory may lag behind. `mode` and the like choose, at run time, the step that is left out
// or done otherwise, so that the right and the wrong kernel are the same code object. Instructions are written out where
// their scope and the waits between them are the point.
#include "gfx.h"

#define ASM __asm__ volatile
#define CU ""
#define SE " scope:SCOPE_SE"
#define DEV " scope:SCOPE_DEV"

#define LOAD(scope, p) \
    ({ \
        u32 x_; \
        ASM("global_load_b32 %0, %1, off" scope "\n s_wait_loadcnt 0x0" : "=&v"(x_) : "v"(p) : "memory"); \
        x_; \
    })
#define ADD(scope, p, x) \
    ({ \
        u32 x_; \
        ASM("global_atomic_add_u32 %0, %1, %2, off th:TH_ATOMIC_RETURN" scope "\n s_wait_loadcnt 0x0" \
            : "=&v"(x_) \
            : "v"(p), "v"(x) \
            : "memory"); \
        x_; \
    })
#define ADD_ONLY(scope, p, x) ASM("global_atomic_add_u32 %0, %1, off" scope ::"v"(p), "v"(x) : "memory")
#define STORE(scope, p, x) ASM("global_store_b32 %0, %1, off" scope ::"v"(p), "v"(x) : "memory")
#define WAIT_STORE() ASM("s_wait_storecnt 0x0" ::: "memory")
#define WAIT_DS() ASM("s_wait_dscnt 0x0" ::: "memory")
#define INV(scope) ASM("global_inv" scope "\n s_wait_loadcnt 0x0" ::: "memory")
#define WB(scope) ASM("global_wb" scope "\n s_wait_storecnt 0x0" ::: "memory")
#define SCALAR_INV() ASM("s_dcache_inv\n s_wait_kmcnt 0x0" ::: "memory")
// Orders the waves, not their memory.
#define MEET() ASM("s_barrier_signal -1\n s_barrier_wait -1" ::: "memory")

#define NAP(turns) \
    for (u32 i_ = 0; i_ < (turns); i_++) __builtin_amdgcn_s_sleep(1)

// Until *p is x. Gives up at last, so that a broken simulator gives a wrong result in good time.
#define AWAIT(scope, p, x) \
    for (u32 left_ = 5000; left_ && (u32)__builtin_amdgcn_readfirstlane(LOAD(scope, p)) != (x); left_--) \
    __builtin_amdgcn_s_sleep(1)

// Each pair of workgroups (or each workgroup) has lines of its own.
enum { LINE = 32, BOX = 8 * LINE };
INLINE u32 value(u32 i) { return 0x81020304u + i * 0x01010101u; }
INLINE u32 load_scalar(const u32 *p) {
    u32 x;
    ASM("s_load_b32 %0, %1, 0x0\n s_wait_kmcnt 0x0" : "=&s"(x) : "s"(p) : "memory");
    return x;
}

enum { BY_CU_STORE, BY_SE_STORE, BY_DEV_STORE, BY_SE_ATOMIC, BY_DEV_ATOMIC };
enum { PUBLISH_NOT, PUBLISH_WAIT, PUBLISH_WB, PUBLISH_LOAD, PUBLISH_ATOMIC };
enum { FLAG_CU_STORE, FLAG_DEV_STORE, FLAG_ATOMIC };
enum { ACQUIRE_NOT, ACQUIRE_SE, ACQUIRE_DEV, ACQUIRE_SCALAR };
enum { READ_CU, READ_SE, READ_DEV, READ_SCALAR };

INLINE void write_message(u32 *data, u32 *flag, u32 by, u32 publish, u32 flag_by) {
    u32 x = value(lane());
    if (by == BY_CU_STORE) STORE(CU, data + lane(), x);
    else if (by == BY_SE_STORE) STORE(SE, data + lane(), x);
    else if (by == BY_DEV_STORE) STORE(DEV, data + lane(), x);
    else if (by == BY_SE_ATOMIC) ADD(SE, data + lane(), x);
    else ADD_ONLY(DEV, data + lane(), x);
    if (publish != PUBLISH_NOT) WAIT_STORE();
    if (publish == PUBLISH_WB) WB(DEV);
    if (publish == PUBLISH_LOAD) LOAD(DEV, flag + LINE);
    if (publish == PUBLISH_ATOMIC) ADD(DEV, flag + LINE, 1);
    if (lane() == 0) {
        if (flag_by == FLAG_CU_STORE) STORE(CU, flag, 1);
        else if (flag_by == FLAG_DEV_STORE) STORE(DEV, flag, 1);
        else ADD(DEV, flag, 1);
    }
    WAIT_STORE();
    // The end of the workgroup would publish what it keeps.
    NAP(400);
}
INLINE u32 read_as(const u32 *data, u32 read) {
    u32 x = 0;
    if (read == READ_CU) x = LOAD(CU, data + lane());
    else if (read == READ_SE) x = LOAD(SE, data + lane());
    else if (read == READ_DEV) x = LOAD(DEV, data + lane());
    else
        for (u32 i = 0; i < LINE; i++) {
            u32 y = load_scalar(data + i);
            if (lane() == i) x = y;
        }
    return x;
}
// The first of two workgroups writes a line, then a flag; the other waits for the flag and reads the line.
KERNEL(32) message(u32 *box, u32 *out, u32 by, u32 publish, u32 flag_by, u32 delay, u32 acquire, u32 read, u32 touch) {
    u32 *data = box + group() / 2 * BOX, *flag = data + 2 * LINE;
    if (group() % 2 == 0) {
        write_message(data, flag, by, publish, flag_by);
        return;
    }
    u32 before = touch ? read_as(data, read) == 12345 : 0;
    AWAIT(DEV, flag, 1);
    NAP(delay);
    if (acquire == ACQUIRE_SE) INV(SE);
    if (acquire == ACQUIRE_DEV) INV(DEV);
    if (acquire == ACQUIRE_SCALAR) SCALAR_INV();
    out[group() / 2 * 32 + lane()] = read_as(data, read) + before;
}

// The reader loads flag and line at once; with `wait` it issues the second load only when it has the first one's result.
#define BOTH_LOADS(between) \
    ASM("global_load_b32 %0, %2, off" DEV "\n " between "\n global_load_b32 %1, %3, off" DEV \
        "\n .rept 20\n s_sleep 1\n .endr\n s_wait_loadcnt 0x0" \
        : "=&v"(first), "=&v"(second) \
        : "v"(flag), "v"(data + lane()) \
        : "memory")
KERNEL(32) two_loads(u32 *box, u32 *out, u32 wait) {
    u32 *data = box + group() / 2 * BOX, *flag = data + 2 * LINE, first = 0, second = 0;
    if (group() % 2 == 0) {
        NAP(30);
        write_message(data, flag, BY_DEV_STORE, PUBLISH_WAIT, FLAG_DEV_STORE);
        return;
    }
    for (u32 left = 5000; left && !__builtin_amdgcn_readfirstlane(first); left--) {
        if (wait) BOTH_LOADS("s_wait_loadcnt 0x0");
        else BOTH_LOADS("s_nop 0");
        __builtin_amdgcn_s_sleep(1);
    }
    out[group() / 2 * 32 + lane()] = second;
}

// Wave 1 writes, wave 0 reads behind a barrier. They are in different halves of the processor, unless in CU mode.
INLINE void halves_body(u32 *box, u32 *out, u32 by, u32 wait, u32 touch, u32 writer_inv, u32 reader_inv, u32 read) {
    u32 *data = box + group() * BOX, before = 0, x = value(lane());
    if (wave() == 0 && touch) before = LOAD(CU, data + lane()) == 12345;
    MEET();
    if (wave() == 1) {
        if (by == BY_CU_STORE) STORE(CU, data + lane(), x);
        else if (by == BY_SE_STORE) STORE(SE, data + lane(), x);
        else ADD(SE, data + lane(), x);
        if (wait) WAIT_STORE();
        if (writer_inv) INV(SE);
    }
    MEET();
    if (wave() == 0) {
        if (reader_inv) INV(SE);
        x = read_as(data, read);
        out[group() * 32 + lane()] = x + before;
    }
}
KERNEL(64) halves(u32 *box, u32 *out, u32 by, u32 wait, u32 touch, u32 writer_inv, u32 reader_inv, u32 read) {
    halves_body(box, out, by, wait, touch, writer_inv, reader_inv, read);
}
__attribute__((target("cumode"))) KERNEL(64)
    halves_cu(u32 *box, u32 *out, u32 by, u32 wait, u32 touch, u32 writer_inv, u32 reader_inv, u32 read) {
    halves_body(box, out, by, wait, touch, writer_inv, reader_inv, read);
}

// Wave 0, whose L0 holds the line, waits for wave 1 with loads of the workgroup's scope, which must not read that L0.
KERNEL(64) polls_workgroup(u32 *box, u32 *out) {
    u32 *flag = box + group() * BOX;
    if (wave() == 0) LOAD(CU, flag);
    MEET();
    if (wave() == 1) {
        if (lane() == 0) STORE(SE, flag, 7);
        WAIT_STORE();
        NAP(20);
        return;
    }
    AWAIT(SE, flag, 7);
    out[group() * 32 + lane()] = LOAD(SE, flag);
}

// Wave 0 waits for another workgroup and acquires; wave 1, in the other half, reads after the barrier.
KERNEL(64) acquired_by_other(u32 *box, u32 *out, u32 acquire) {
    u32 *data = box + group() / 2 * BOX, *flag = data + 2 * LINE;
    if (group() % 2 == 0) {
        if (wave() == 0) write_message(data, flag, BY_CU_STORE, PUBLISH_WAIT, FLAG_DEV_STORE);
        return;
    }
    if (wave() == 0) {
        AWAIT(DEV, flag, 1);
        INV(DEV);
    }
    MEET();
    if (wave() == 0) return;
    if (acquire) INV(SE);
    out[group() / 2 * 32 + lane()] = LOAD(CU, data + lane());
}

// A wave's loads and atomics see its stores, also those of other lanes, though nothing waits. out[k][lane] for each way.
#define STORE_LOAD(store_scope, load_scope, p, x, q) \
    ({ \
        u32 y_; \
        ASM("global_store_b32 %1, %2, off" store_scope "\n global_load_b32 %0, %3, off" load_scope "\n s_wait_loadcnt 0x0" \
            : "=&v"(y_) \
            : "v"(p), "v"(x), "v"(q) \
            : "memory"); \
        y_; \
    })
KERNEL(32) own_stores(u32 *box, u32 *out, u32 published) {
    u32 *p = box + group() * BOX + lane(), *q = box + group() * BOX + (lane() ^ 1), x = value(lane()), r[8];
    r[0] = STORE_LOAD(CU, CU, p, x, q);
    r[1] = STORE_LOAD(CU, SE, p, x + 1, q);
    r[2] = STORE_LOAD(CU, DEV, p, x + 2, q);
    r[3] = STORE_LOAD(SE, CU, p, x + 3, q);
    r[4] = STORE_LOAD(SE, SE, p, x + 4, q);
    r[5] = published ? STORE_LOAD(SE, DEV, p, x + 5, q) : value(lane() ^ 1) + 5;
    STORE(DEV, p, x + 6);
    r[6] = ADD(DEV, q, 1);
    STORE(SE, p, x + 8);
    r[7] = ADD(SE, q, 1);
    ASM("global_store_b8 %0, %1, off offset:3" ::"v"(p), "v"(lane()) : "memory");
    u32 last = LOAD(CU, q);
    for (u32 i = 0; i < 8; i++) out[(group() * 9 + i) * 32 + lane()] = r[i];
    out[(group() * 9 + 8) * 32 + lane()] = last;
}

// A load that is under way does not see what its wave stores after it, in memory or LDS. out[k][lane] for each way.
#define LOAD_STORE(scope, p, x) \
    ({ \
        u32 y_; \
        ASM("global_load_b32 %0, %1, off" scope "\n global_store_b32 %1, %2, off" scope \
            "\n s_wait_storecnt 0x0\n s_wait_loadcnt 0x0" \
            : "=&v"(y_) \
            : "v"(p), "v"(x) \
            : "memory"); \
        y_; \
    })
KERNEL(32) own_loads(u32 *box, u32 *out) {
    LDS u32 s[32];
    u32 *p = box + group() * BOX + lane(), x = value(lane()), at = (u32)(__UINTPTR_TYPE__)(s + lane()), r[8], old;
    r[0] = LOAD_STORE(DEV, p, x);
    r[1] = LOAD_STORE(SE, p, x + 1);
    r[2] = LOAD_STORE(CU, p, x + 2);
    ASM("global_load_b32 %0, %1, off" DEV "\n global_atomic_add_u32 %1, %2, off" DEV
        "\n s_wait_storecnt 0x0\n s_wait_loadcnt 0x0"
        : "=&v"(r[3])
        : "v"(p), "v"(x)
        : "memory");
    ASM("ds_store_b32 %1, %2\n ds_load_b32 %0, %1\n ds_store_b32 %1, %3\n s_wait_dscnt 0x0"
        : "=&v"(r[4])
        : "v"(at), "v"(x), "v"(x + 1)
        : "memory");
    ASM("ds_load_b32 %0, %1\n ds_add_u32 %1, %2\n s_wait_dscnt 0x0" : "=&v"(r[5]) : "v"(at), "v"(x) : "memory");
    ASM("ds_load_b32 %0, %2\n ds_add_rtn_u32 %1, %2, %3\n s_wait_dscnt 0x0"
        : "=&v"(r[6]), "=&v"(old)
        : "v"(at), "v"(x)
        : "memory");
    ASM("global_load_b32 %0, %2, off" DEV "\n global_atomic_add_u32 %1, %2, %3, off th:TH_ATOMIC_RETURN" DEV
        "\n s_wait_loadcnt 0x0"
        : "=&v"(r[7]), "=&v"(old)
        : "v"(p), "v"(x)
        : "memory");
    for (u32 i = 0; i < 8; i++) out[(group() * 8 + i) * 32 + lane()] = r[i];
}

// Stores to the same bytes by different lanes, of unequal widths: the last stays.
KERNEL(32) overlapping(u32 *box) {
    u32 *p = box + group() * BOX, t = lane();
    for (u32 i = 0; i < 4; i++) {
        STORE(CU, p + t, value(t) + i);
        ASM("global_store_b16 %0, %1, off offset:2" ::"v"(p + (t ^ 1)), "v"(t + i) : "memory");
        ASM("global_store_b8 %0, %1, off offset:1" ::"v"(p + (t ^ 2)), "v"(t * 3 + i) : "memory");
    }
}

// What a workgroup keeps is public when it has ended.
KERNEL(32) kept(u32 *box) {
    u32 *p = box + group() * BOX + lane();
    STORE(SE, p, value(lane()));
    ADD(SE, p + 2 * LINE, value(lane()));
}

// What was stored with SE and then with CU is no longer the workgroup's to publish: another workgroup stores after it.
KERNEL(32) overwritten(u32 *box) {
    u32 *data = box + group() / 2 * BOX, *flag = data + 2 * LINE, x = value(lane());
    if (group() % 2 == 0) {
        STORE(SE, data + lane(), x);
        WAIT_STORE();
        STORE(CU, data + lane(), x + 1);
        WAIT_STORE();
        if (lane() == 0) STORE(CU, flag, 1);
        WAIT_STORE();
        NAP(400);
    } else {
        AWAIT(DEV, flag, 1);
        STORE(DEV, data + lane(), x + 2);
    }
}

// The writer goes on to 8 while the reader, who acquired when it was 3, reads without another acquire: 3 or any later one.
KERNEL(32) old_versions(u32 *box, u32 *out) {
    u32 *data = box + group() / 2 * BOX, *flag = data + 2 * LINE, *seen = data + 4 * LINE;
    if (group() % 2 == 0) {
        for (u32 i = 1; i <= 8; i++) {
            STORE(DEV, data + lane(), i);
            WAIT_STORE();
            if (lane() == 0) STORE(DEV, flag, i);
            WAIT_STORE();
            INV(DEV);
            if (i == 3) AWAIT(DEV, seen, 1);
        }
    } else {
        AWAIT(DEV, flag, 3);
        INV(DEV);
        if (lane() == 0) STORE(DEV, seen, 1);
        WAIT_STORE();
        AWAIT(DEV, flag, 8);
        out[group() / 2 * 32 + lane()] = LOAD(CU, data + lane());
    }
}

#define LOAD_MEET(before, behind) \
    ASM("ds_load_b32 %0, %1\n " before "\n s_barrier_signal -1\n s_barrier_wait -1\n " behind \
        : "=&v"(y) \
        : "v"(at) \
        : "memory")
// Wave 0 writes LDS, wave 1 reads it behind a barrier. `early`: wave 1 has its load under way while wave 0 writes.
enum { LDS_STORE, LDS_ADD, LDS_FLAT_STORE };
KERNEL(64) through_lds(u32 *out, u32 by, u32 wait, u32 early) {
    LDS u32 s[32];
    u32 *flat = (u32 *)(s + lane());
    u32 at = (u32)(__UINTPTR_TYPE__)(s + lane()), x = value(lane()), y = 0;
    if (wave() == 1) ASM("ds_store_b32 %0, %1\n s_wait_dscnt 0x0" ::"v"(at), "v"(1u) : "memory");
    MEET();
    if (early) {
        if (wave() == 1) {
            if (wait) LOAD_MEET("s_wait_dscnt 0x0", "s_nop 0");
            else LOAD_MEET("s_nop 0", "s_wait_dscnt 0x0");
        } else {
            MEET();
            ASM("ds_store_b32 %0, %1\n s_wait_dscnt 0x0" ::"v"(at), "v"(x) : "memory");
        }
    } else {
        if (wave() == 0) {
            if (by == LDS_STORE) ASM("ds_store_b32 %0, %1" ::"v"(at), "v"(x) : "memory");
            else if (by == LDS_ADD) ASM("ds_add_u32 %0, %1" ::"v"(at), "v"(x - 1) : "memory");
            else ASM("flat_store_b32 %0, %1" ::"v"(flat), "v"(x) : "memory");
            // What a flat store does to LDS, the counter of stores does not tell.
            if (by == LDS_FLAT_STORE) WAIT_STORE();
            if (wait) WAIT_DS();
        }
        MEET();
        if (wave() == 1) ASM("ds_load_b32 %0, %1\n s_wait_dscnt 0x0" : "=&v"(y) : "v"(at) : "memory");
    }
    if (wave() == 1) out[group() * 32 + lane()] = y;
}

#define TWO_LDS(y, x, first, second) \
    ASM(first "\n " second "\n s_wait_loadcnt_dscnt 0x0" : "=&v"(y) : "v"(at), "v"(x), "v"(p) : "memory")
// A wave's instructions for LDS act in order, flat ones too. out[k][lane] for each pair.
KERNEL(32) own_lds(u32 *out) {
    LDS u32 s[32];
    const u32 *p = (const u32 *)(s + lane());
    u32 at = (u32)(__UINTPTR_TYPE__)(s + lane()), x = value(lane()), r[6];
    TWO_LDS(r[0], x, "ds_store_b32 %1, %2", "ds_load_b32 %0, %1");
    TWO_LDS(r[1], x + 1, "ds_store_b32 %1, %2", "flat_load_b32 %0, %3");
    TWO_LDS(r[2], x + 2, "flat_store_b32 %3, %2", "ds_load_b32 %0, %1");
    TWO_LDS(r[3], x + 3, "ds_store_b32 %1, %2", "ds_add_rtn_u32 %0, %1, %2");
    TWO_LDS(r[4], 1u, "ds_add_u32 %1, %2", "ds_load_b32 %0, %1");
    TWO_LDS(r[5], 1u, "ds_add_u32 %1, %2", "flat_load_b32 %0, %3");
    for (u32 i = 0; i < 6; i++) out[(group() * 6 + i) * 32 + lane()] = r[i];
}

// One workgroup counts, the other looks with loads of all scopes in turn and notes when a count goes back.
KERNEL(32) never_back(u32 *box, u32 *out, u32 rounds) {
    u32 *p = box + group() / 2 * BOX + lane(), *flag = box + group() / 2 * BOX + 2 * LINE;
    if (group() % 2 == 0) {
        AWAIT(DEV, flag, 1);
        for (u32 i = 1; i <= rounds; i++) {
            STORE(DEV, p, i);
            NAP(2);
        }
        return;
    }
    u32 last = LOAD(CU, p), back = 0;
    if (lane() == 0) STORE(DEV, flag, 1);
#define LOOK(scope) \
    { \
        u32 x_ = LOAD(scope, p); \
        back |= x_ < last; \
        last = x_; \
    }
    for (u32 i = 0; i < rounds * 2; i++) {
        LOOK(DEV);
        LOOK(CU);
        LOOK(SE);
        LOOK(CU);
        u32 first, second;
        ASM("global_load_b32 %0, %2, off" DEV "\n global_load_b32 %1, %2, off" DEV
            "\n .rept 8\n s_sleep 1\n .endr\n s_wait_loadcnt 0x0"
            : "=&v"(first), "=&v"(second)
            : "v"(p)
            : "memory");
        back |= first < last || second < first;
        last = second;
    }
    out[group() / 2 * 32 + lane()] = back;
}

// A slot that goes from workgroup to workgroup and back. mode 0: right. 1 and 2: the load is still under way when the slot
// goes back. 4: that of one wave, whose wait follows at once. 3: the other wave may still read when it goes back.
// The next message comes after a delay.
#define LATE_LOAD(scope, naps) \
    ASM("global_load_b32 %0, %1, off" scope "\n s_barrier_signal -1\n s_barrier_wait -1\n" \
        "global_store_b32 %2, %3, off" DEV "\n .rept " naps "\n s_sleep 1\n .endr\n s_wait_loadcnt 0x0" \
        : "=&v"(x) \
        : "v"(slot + thread()), "v"(wave() == 0 ? tail : tail + LINE), "v"(m + 1) \
        : "memory")
KERNEL(64) ring(const u32 *in, u32 *box, u32 *out, u32 messages, u32 mode, u32 delay) {
    u32 *slot = box + group() / 2 * BOX, *head = slot + 2 * LINE, *tail = slot + 4 * LINE;
    out += group() / 2 * messages * 64;
    for (u32 m = 0; m < messages; m++) {
        if (group() % 2 == 0) {
            if (wave() == 0) AWAIT(DEV, tail, m);
            NAP(delay);
            MEET();
            INV(DEV);
            STORE(CU, slot + thread(), in[m * 64 + thread()]);
            WAIT_STORE();
            MEET();
            if (thread() == 0) STORE(DEV, head, m + 1);
        } else {
            u32 x;
            if (wave() == 0) AWAIT(DEV, head, m + 1);
            MEET();
            INV(DEV);
            if (mode == 1) LATE_LOAD(CU, "40");
            else if (mode == 2) LATE_LOAD(DEV, "40");
            else if (mode == 4 && wave() == 0) LATE_LOAD(CU, "0");
            else {
                x = LOAD(CU, slot + thread());
                if (mode == 0 || mode == 4) MEET();
                if (thread() == 0) STORE(DEV, tail, m + 1);
            }
            out[m * 64 + thread()] = x;
        }
    }
}

// Registers that are used before, or behind, the wait that counts them.
KERNEL(32) landing(const u32 *in, u32 *out, u32 mode) {
    LDS u32 s[64];
    u32 at = (u32)(__UINTPTR_TYPE__)(s + lane()), x = 0, y = 0, z = 0;
    const u32 *p = in + lane();
    s[lane()] = in[lane()];
    s[lane() + 32] = in[lane() + 32];
    WAIT_DS();
#define TWO(first, second, wait1, use1, wait0, use0, c, a) \
    ASM(first "\n " second "\n " wait1 "\n " use1 "\n " wait0 "\n " use0 : "=&" c(x), "=&" c(y), "=&" c(z) : a : "memory")
#define GLOBAL2 "global_load_b32 %0, %3, off", "global_load_b32 %1, %3, off offset:128"
#define LDS2 "ds_load_b32 %0, %3", "ds_load_b32 %1, %3 offset:128"
#define SCALAR2 "s_load_b32 %0, %3, 0x0", "s_load_b32 %1, %3, 0x80"
#define V(x) "v_add_nc_u32 %2, 0, " x
#define S(x) "s_mov_b32 %2, " x
#define CASE2(first_right, two, wait, use, c, a) \
    if (mode == first_right) TWO2(two, "s_wait_" wait " 0x1", use("%0"), "s_wait_" wait " 0x0", use("%1"), c, a); \
    if (mode == first_right + 1) TWO2(two, "s_wait_" wait " 0x1", use("%1"), "s_wait_" wait " 0x0", use("%1"), c, a); \
    if (mode == first_right + 2) TWO2(two, "s_wait_" wait " 0x2", use("%0"), "s_wait_" wait " 0x0", use("%1"), c, a); \
    if (mode == first_right + 3) TWO2(two, "s_nop 0", "s_nop 0", "s_wait_" wait " 0x0", use("%1"), c, a)
#define TWO2(...) TWO(__VA_ARGS__)
    CASE2(0, GLOBAL2, "loadcnt", V, "v", "v"(p));
    CASE2(4, LDS2, "dscnt", V, "v", "v"(at));
    CASE2(8, SCALAR2, "kmcnt", S, "s", "s"(in));
    // Two kinds of results for one register; then with a wait between.
#define BOTH(wait) \
    ASM("global_load_b32 %2, %0, off\n " wait "\n ds_load_b32 %2, %1 offset:128\n s_wait_loadcnt_dscnt 0x0" \
        : "+v"(p), "+v"(at), "=&v"(z)::"memory")
    if (mode == 12) BOTH("s_wait_loadcnt 0x0");
    if (mode == 13) BOTH("s_nop 0");
#define FLAT(wait) \
    ASM("flat_load_b32 %0, %1 offset:128\n " wait "\n v_mov_b32 %2, %0\n s_wait_loadcnt_dscnt 0x0" \
        : "=&v"(x), "+v"(p), "=&v"(z)::"memory")
    if (mode == 14) FLAT("s_wait_loadcnt_dscnt 0x0");
    if (mode == 15) FLAT("s_wait_loadcnt 0x0");
    if (mode == 16) FLAT("s_wait_dscnt 0x0");
    out[lane()] = z;
}
