/* The environment, read here and nowhere else: at the first call and at each hipDeviceReset. */
#include "host.h"
#include <stdlib.h>
#include <string.h>

Settings settings;

static void text(const char *name, char *to, size_t size) {
    const char *value = getenv(name);
    snprintf(to, size, "%s", value ? value : "");
}
static u64 number(const char *name, u64 otherwise) {
    const char *value = getenv(name);
    if (!value || !*value) return otherwise;
    char *end;
    u64 n = strtoull(value, &end, 0);
    if (*end) {
        fprintf(stderr, "rdna4sim: %s=%s is no number; %llu is used\n", name, value, otherwise);
        return otherwise;
    }
    return n;
}
void settings_read(void) {
    settings.seed = (u32)number("RDNA4SIM_SEED", 0);
    settings.weak = number("RDNA4SIM_WEAK", 0) != 0;
    settings.limit = number("RDNA4SIM_LIMIT", 0);
    settings.check_undefined = number("RDNA4SIM_UNDEFINED", 1) != 0;
    settings.events_estimate = number("RDNA4SIM_ESTIMATE", 0) != 0;
    text("RDNA4SIM_COUNTERS", settings.counters, sizeof settings.counters);
    text("RDNA4SIM_REPORT", settings.report, sizeof settings.report);
    text("RDNA4SIM_CACHE", settings.cache, sizeof settings.cache);
    text("RDNA4SIM_PYTHON", settings.python, sizeof settings.python);
    if (!*settings.python) snprintf(settings.python, sizeof settings.python, "%s", RDNA4SIM_BUILT_WITH);
    if (*settings.cache) return;
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (base && *base) snprintf(settings.cache, sizeof settings.cache, "%s/rdna4sim", base);
    else snprintf(settings.cache, sizeof settings.cache, "%s/.cache/rdna4sim", home ? home : "");
}
