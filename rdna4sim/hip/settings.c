/* The environment, read here and nowhere else: at the first call and at each hipDeviceReset. */
#include "host.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Settings settings;

static void text(const char *name, char *to, size_t size) {
    const char *value = getenv(name);
    if (value && strlen(value) >= size) {
        error_line("rdna4sim: %s is longer than %zu bytes; it is not used\n", name, size - 1);
        value = 0;
    }
    snprintf(to, size, "%s", value ? value : "");
}
/* A whole number up to `most`, decimal or with 0x. */
static u64 number(const char *name, u64 otherwise, u64 most) {
    const char *value = getenv(name);
    if (!value || !*value) return otherwise;
    char *end;
    errno = 0;
    u64 n = strtoull(value, &end, 0);
    if (*value >= '0' && *value <= '9' && !*end && !errno && n <= most) return n;
    error_line("rdna4sim: %s=%s is not a number from 0 to %llu; %llu is used\n", name, value, most, otherwise);
    return otherwise;
}
/* A relative folder is meant from where the program stood when it was first seen: the program may go elsewhere. */
static void cache_folder(void) {
    static char *seen;
    const char *value = getenv("RDNA4SIM_CACHE");
    if (value && seen && !strcmp(value, seen)) return;
    free(seen), free(settings.cache);
    seen = value ? strdup(value) : 0, settings.cache = 0;
    char *here = value && *value && *value != '/' ? getcwd(0, 0) : 0;
    size_t size = here ? strlen(here) + strlen(value) + 17 : 0;
    settings.cache = here ? malloc(size) : 0;
    if (settings.cache) snprintf(settings.cache, size, "RDNA4SIM_CACHE=%s/%s", here, value);
    free(here);
}
void settings_read(void) {
    settings.seed = (u32)number("RDNA4SIM_SEED", 0, ~0u);
    settings.weak = (int)number("RDNA4SIM_WEAK", 0, 1);
    settings.limit = number("RDNA4SIM_LIMIT", 0, ~0ull);
    settings.check_undefined = (int)number("RDNA4SIM_UNDEFINED", 1, 1);
    settings.events_estimate = (int)number("RDNA4SIM_ESTIMATE", 0, 1);
    text("RDNA4SIM_COUNTERS", settings.counters, sizeof settings.counters);
    text("RDNA4SIM_REPORT", settings.report, sizeof settings.report);
    cache_folder();
    text("RDNA4SIM_PYTHON", settings.python, sizeof settings.python);
    if (!*settings.python) snprintf(settings.python, sizeof settings.python, "%s", RDNA4SIM_BUILT_WITH);
}
