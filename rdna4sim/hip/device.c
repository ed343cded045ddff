/* The HIP C ABI: the device, its properties and attributes, contexts, error names. */
#include "host.h"
#include <string.h>

/* What a host can ask about the card. A row: number of the attribute, offset in hipDeviceProp_tR0600 (what
 * hipGetDeviceProperties means to programs compiled for ROCm 6 and later), offset in the older structure (which the plain
 * symbol fills in), bytes, value; -1 where there is no such thing. Fields not named are 0. */
typedef struct { short attribute, at, older, bytes; u64 value; } Fact;
enum { R0600_BYTES = 1472, R0600_UUID = 256, R0600_ARCH = 1160, R0000_BYTES = 792, R0000_ARCH = 396, INT = 0x7fffffff,
       REGISTERS_ALL = REGISTERS * LANES * SIMDS, THREADS_ALL = SIMDS * WAVES_PER_SIMD * LANES, L2 = 8 << 20 };
static const char NAME[] = "Radeon gfx1201 (rdna4sim)", ARCH[] = "gfx1201", UUID[] = "rdna4sim-gfx1201", BUS[] = "0000:03:00.0";
static const Fact facts[] = {
    {-1, 288, 256, 8, DEVICE_MEMORY},
    {74, 296, 264, 8, LDS_PER_GROUP}, {75, 696, -1, 8, LDS_PER_GROUP}, {76, 640, -1, 8, LDS_PER_GROUP},
    {10002, 1416, 376, 8, LDS_PER_GROUP}, {73, -1, -1, 4, 0},                           /* LDS */
    {71, 304, 272, 4, REGISTERS_ALL}, {72, 648, -1, 4, REGISTERS_ALL}, {10019, -1, -1, 4, 256},
    {87, 308, 276, 4, LANES}, {56, 320, 280, 4, MAX_THREADS}, {57, 624, 344, 4, THREADS_ALL},
    {25, 712, -1, 4, THREADS_ALL / MAX_THREADS},
    {26, 324, 284, 4, MAX_THREADS}, {27, 328, 288, 4, MAX_THREADS}, {28, 332, 292, 4, MAX_THREADS},
    {29, 336, 296, 4, INT}, {30, 340, 300, 4, 65536}, {31, 344, 304, 4, 65536},
    {5, 348, 308, 4, CLOCK_KHZ}, {10000, 1424, 352, 4, TIMER_KHZ}, {10017, -1, -1, 4, TIMER_KHZ},
    {60, 608, 312, 4, MEMORY_KHZ}, {59, 612, 316, 4, 256}, {19, 616, 340, 4, L2}, {70, 620, -1, 4, L2},
    {83, 352, 320, 8, INT}, {58, 312, 712, 8, INT},                                     /* constants, pitch */
    {23, 360, 328, 4, 12}, {61, 364, 332, 4, 0}, {-1, -1, 392, 4, 1201}, {-1, 1428, 356, 4, 0x97ff},
    {63, 388, 336, 4, PROCESSORS}, {10015, -1, -1, 4, 2 * PROCESSORS}, {10018, -1, -1, 4, 1},
    {81, 368, 720, 8, 256}, {82, 376, 728, 8, 256}, {79, 568, -1, 8, 256},              /* alignment of textures */
    {12, 384, -1, 4, 1}, {2, 600, -1, 4, 2}, {8, 576, 360, 4, 1}, {78, 628, -1, 4, 1},  /* things at one time */
    {3, 400, 388, 4, 1}, {4, 684, -1, 4, 1}, {85, 604, -1, 4, 1}, {90, 728, -1, 4, 1}, {24, 652, 772, 4, 1},
    {9, 676, 780, 4, 1}, {13, 708, 776, 4, 1}, {10011, 1464, 764, 4, 1}, {10016, -1, -1, 4, 1},
    {14, 632, -1, 4, 1}, {20, 636, -1, 4, 1}, {10, 688, 656, 4, 1},                     /* caches; cooperative launch */
    {67, 584, 368, 4, 3}, {68, 588, 372, 4, 0}, {69, 592, 364, 4, 0}, {10012, 1468, 768, 4, 1}, {10020, -1, -1, 4, 0x7550},
    /* What this card has not: ECC, integrated memory, exclusive mode, launches over several cards, pools, images ... */
    {0, -1, -1, 4, 0}, {6, -1, -1, 4, 0}, {7, -1, -1, 4, 0}, {11, -1, -1, 4, 0}, {15, -1, -1, 4, 0}, {16, -1, -1, 4, 0},
    {17, -1, -1, 4, 0}, {18, -1, -1, 4, 0}, {62, -1, -1, 4, 0}, {65, -1, -1, 4, 0}, {66, -1, -1, 4, 0}, {77, -1, -1, 4, 0},
    {80, -1, -1, 4, 0}, {88, -1, -1, 4, 0}, {89, -1, -1, 4, 0}, {10007, -1, -1, 4, 0}, {10008, -1, -1, 4, 0},
    {10009, -1, -1, 4, 0}, {10010, -1, -1, 4, 0}, {10013, -1, -1, 4, 0}, {10014, -1, -1, 4, 0},
};
enum { FACTS = sizeof facts / sizeof *facts };

static int properties(u8 *out, int device, int older) {
    look();
    if (!out) return done(hipErrorInvalidValue);
    if (device) return done(hipErrorInvalidDevice);
    memset(out, 0, older ? R0000_BYTES : R0600_BYTES);
    memcpy(out, NAME, sizeof NAME);
    memcpy(out + (older ? R0000_ARCH : R0600_ARCH), ARCH, sizeof ARCH);
    if (!older) memcpy(out + R0600_UUID, UUID, 16);
    for (u32 i = 0; i < FACTS; i++) {
        int at = older ? facts[i].older : facts[i].at;
        if (at >= 0) memcpy(out + at, &facts[i].value, (size_t)facts[i].bytes);
    }
    return done(hipSuccess);
}
PUBLIC int hipGetDevicePropertiesR0600(void *out, int device) { return properties(out, device, 0); }
PUBLIC int hipGetDevicePropertiesR0000(void *out, int device) { return properties(out, device, 1); }
PUBLIC int hipGetDeviceProperties(void *out, int device) { return properties(out, device, 1); }
PUBLIC int hipDeviceGetAttribute(int *out, int attribute, int device) {
    look();
    if (!out) return done(hipErrorInvalidValue);
    if (device) return done(hipErrorInvalidDevice);
    for (u32 i = 0; i < FACTS; i++)
        if (attribute >= 0 && facts[i].attribute == attribute) { *out = (int)facts[i].value; return done(hipSuccess); }
    return done(hipErrorInvalidValue);
}

/* A question about device 0 that has one answer. */
static int answer(int device, int *out, int value) {
    look();
    if (device) return done(hipErrorInvalidDevice);
    if (!out) return done(hipErrorInvalidValue);
    *out = value;
    return done(hipSuccess);
}
PUBLIC int hipInit(u32 flags) { look(); return done(flags ? hipErrorInvalidValue : hipSuccess); }
PUBLIC int hipDriverGetVersion(int *out) { return answer(0, out, 60400000); }
PUBLIC int hipRuntimeGetVersion(int *out) { return answer(0, out, 60400000); }
PUBLIC int hipGetDeviceCount(int *out) { return answer(0, out, 1); }
PUBLIC int hipGetDevice(int *out) { return answer(0, out, 0); }
PUBLIC int hipSetDevice(int device) { int n; return answer(device, &n, 0); }
PUBLIC int hipDeviceGet(int *out, int device) { return answer(device, out, 0); }
PUBLIC int hipSetDeviceFlags(u32 flags) { look(); return done(flags & ~0x1fu ? hipErrorInvalidValue : hipSuccess); }
PUBLIC int hipGetDeviceFlags(u32 *out) { return answer(0, (int *)out, 0); }
PUBLIC int hipDeviceSynchronize(void) { return done(begin()); }
PUBLIC int hipDeviceGetName(char *out, int room, int device) {
    look();
    if (device) return done(hipErrorInvalidDevice);
    if (!out || room <= 0) return done(hipErrorInvalidValue);
    snprintf(out, (size_t)room, "%s", NAME);
    return done(hipSuccess);
}
PUBLIC int hipDeviceGetPCIBusId(char *out, int room, int device) {
    look();
    if (device) return done(hipErrorInvalidDevice);
    if (!out || room < (int)sizeof BUS) return done(hipErrorInvalidValue);
    memcpy(out, BUS, sizeof BUS);
    return done(hipSuccess);
}
PUBLIC int hipDeviceGetByPCIBusId(int *out, const char *text) {
    look();
    if (!out || !text || strncmp(text, BUS, 10)) return done(hipErrorInvalidValue);
    *out = 0;
    return done(hipSuccess);
}
PUBLIC int hipDeviceGetUuid(char *out, int device) {
    look();
    if (device || !out) return done(device ? hipErrorInvalidDevice : hipErrorInvalidValue);
    memcpy(out, UUID, 16);
    return done(hipSuccess);
}
PUBLIC int hipDeviceTotalMem(size_t *out, int device) {
    look();
    if (device || !out) return done(device ? hipErrorInvalidDevice : hipErrorInvalidValue);
    *out = DEVICE_MEMORY;
    return done(hipSuccess);
}
PUBLIC int hipDeviceComputeCapability(int *major, int *minor, int device) {
    look();
    if (device || !major || !minor) return done(device ? hipErrorInvalidDevice : hipErrorInvalidValue);
    *major = 12, *minor = 0;
    return done(hipSuccess);
}
PUBLIC int hipDeviceCanAccessPeer(int *out, int device, int peer) { return answer(device | peer, out, 0); }
PUBLIC int hipDeviceEnablePeerAccess(int peer, u32 flags) { (void)peer, (void)flags; look(); return done(hipErrorInvalidDevice); }
PUBLIC int hipDeviceDisablePeerAccess(int peer) { (void)peer; look(); return done(hipErrorInvalidDevice); }

/* There is one context, and it is always current. */
static int context;
static int give_context(void **out, int device) {
    look();
    if (device || !out) return done(device ? hipErrorInvalidDevice : hipErrorInvalidValue);
    *out = &context;
    return done(hipSuccess);
}
static int take_context(const void *given, int none) {
    look();
    return done(given == &context || (none && !given) ? hipSuccess : hipErrorInvalidContext);
}
PUBLIC int hipCtxCreate(void **out, u32 flags, int device) { (void)flags; return give_context(out, device); }
PUBLIC int hipCtxGetCurrent(void **out) { return give_context(out, 0); }
PUBLIC int hipCtxPopCurrent(void **out) { void *unused; return give_context(out ? out : &unused, 0); }
PUBLIC int hipCtxSetCurrent(void *given) { return take_context(given, 1); }
PUBLIC int hipCtxPushCurrent(void *given) { return take_context(given, 0); }
PUBLIC int hipCtxDestroy(void *given) { return take_context(given, 0); }
PUBLIC int hipCtxGetDevice(int *out) { return answer(0, out, 0); }
PUBLIC int hipCtxSynchronize(void) { return done(begin()); }
PUBLIC int hipDevicePrimaryCtxRetain(void **out, int device) { return give_context(out, device); }
PUBLIC int hipDevicePrimaryCtxRelease(int device) { int n; return answer(device, &n, 0); }

/* Names and texts as HIP has them. */
static const struct { int code; const char *name, *text; } errors[] = {
    {hipSuccess, "hipSuccess", "no error"},
    {hipErrorInvalidValue, "hipErrorInvalidValue", "invalid argument"},
    {hipErrorOutOfMemory, "hipErrorOutOfMemory", "out of memory"},
    {hipErrorNotInitialized, "hipErrorNotInitialized", "initialization error"},
    {4, "hipErrorDeinitialized", "driver shutting down"},
    {hipErrorInvalidConfiguration, "hipErrorInvalidConfiguration", "invalid configuration argument"},
    {13, "hipErrorInvalidSymbol", "invalid device symbol"},
    {17, "hipErrorInvalidDevicePointer", "invalid device pointer"},
    {hipErrorInvalidMemcpyDirection, "hipErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {hipErrorInvalidDeviceFunction, "hipErrorInvalidDeviceFunction", "invalid device function"},
    {100, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {hipErrorInvalidDevice, "hipErrorInvalidDevice", "invalid device ordinal"},
    {hipErrorInvalidImage, "hipErrorInvalidImage", "device kernel image is invalid"},
    {hipErrorInvalidContext, "hipErrorInvalidContext", "invalid device context"},
    {hipErrorNoBinaryForGpu, "hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"},
    {hipErrorUnsupportedLimit, "hipErrorUnsupportedLimit", "limit is not supported on this architecture"},
    {hipErrorPeerAccessUnsupported, "hipErrorPeerAccessUnsupported", "peer access is not supported between these two devices"},
    {hipErrorFileNotFound, "hipErrorFileNotFound", "file not found"},
    {302, "hipErrorSharedObjectSymbolNotFound", "shared object symbol not found"},
    {303, "hipErrorSharedObjectInitFailed", "shared object initialization failed"},
    {304, "hipErrorOperatingSystem", "OS call failed or operation not supported on this OS"},
    {hipErrorInvalidHandle, "hipErrorInvalidHandle", "invalid resource handle"},
    {401, "hipErrorIllegalState", "the operation cannot be performed in the present state"},
    {hipErrorNotFound, "hipErrorNotFound", "named symbol not found"},
    {hipErrorNotReady, "hipErrorNotReady", "device not ready"},
    {hipErrorIllegalAddress, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {701, "hipErrorLaunchOutOfResources", "too many resources requested for launch"},
    {hipErrorLaunchTimeOut, "hipErrorLaunchTimeOut", "the launch timed out and was terminated"},
    {704, "hipErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {hipErrorPeerAccessNotEnabled, "hipErrorPeerAccessNotEnabled", "peer access has not been enabled"},
    {hipErrorContextIsDestroyed, "hipErrorContextIsDestroyed", "context is destroyed"},
    {710, "hipErrorAssert", "device-side assert triggered"},
    {hipErrorHostMemoryAlreadyRegistered, "hipErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {hipErrorHostMemoryNotRegistered, "hipErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {hipErrorLaunchFailure, "hipErrorLaunchFailure", "unspecified launch failure"},
    {hipErrorCooperativeLaunchTooLarge, "hipErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {hipErrorNotSupported, "hipErrorNotSupported", "operation not supported"},
    {hipErrorUnknown, "hipErrorUnknown", "unknown error"},
};
enum { ERRORS = sizeof errors / sizeof *errors };
static u32 error_of(int code) {
    for (u32 i = 0; i < ERRORS; i++) if (errors[i].code == code) return i;
    return ERRORS - 1;
}
PUBLIC const char *hipGetErrorName(int code) { return errors[error_of(code)].name; }
PUBLIC const char *hipGetErrorString(int code) { return errors[error_of(code)].text; }
static int text_of(int code, const char **out, int text) {
    if (!out) return hipErrorInvalidValue;
    u32 i = error_of(code);
    *out = text ? errors[i].text : errors[i].name;
    return errors[i].code == code ? hipSuccess : hipErrorInvalidValue;
}
PUBLIC int hipDrvGetErrorName(int code, const char **out) { return text_of(code, out, 0); }
PUBLIC int hipDrvGetErrorString(int code, const char **out) { return text_of(code, out, 1); }
