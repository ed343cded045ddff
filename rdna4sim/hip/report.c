/* Lines for people: where they go, and that what came from a file stays text.
 *
 * A name of a code object may hold anything. Control characters, bytes that are no UTF-8, and characters that turn or hide
 * text are written as \x1b, \n or \u202e; a terminal never gets them. disasm.printable is the same for the Python side.
 */
#include "host.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Code point and length of the UTF-8 sequence at p; length 0 if there is none. */
static u32 sequence(const u8 *p, u32 *length) {
    static const u32 least[] = {0, 0, 0x80, 0x800, 0x10000};
    u32 n = *p < 0x80 ? 1 : *p >> 5 == 6 ? 2 : *p >> 4 == 14 ? 3 : *p >> 3 == 30 ? 4 : 0;
    u32 c = n < 2 ? *p : *p & 0x7fu >> n;
    for (u32 i = 1; i < n; i++) {
        if (p[i] >> 6 != 2) { *length = 0; return 0; }
        c = c << 6 | (p[i] & 63);
    }
    *length = n && c >= least[n] && c < 0x110000 && c >> 11 != 27 ? n : 0;
    return c;
}
static int shown(u32 c) {
    if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c || c == 0xfeff) return 0;
    return !(c >= 0x200b && c <= 0x200f) && !(c >= 0x2028 && c <= 0x202e) && !(c >= 0x2060 && c <= 0x206f) && c >> 12 != 0xe0;
}
/* One line: a line feed that is not the last byte is as any control character. */
static void put_line(FILE *out, const char *line) {
    size_t bytes = strlen(line);
    for (const u8 *p = (const u8 *)line, *end = p + bytes; p < end;) {
        u32 length, c = sequence(p, &length);
        if (length && (shown(c) || (c == '\n' && p + 1 == end))) fwrite(p, 1, length, out);
        else if (length && (c == '\n' || c == '\r' || c == '\t')) fputs(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", out);
        else if (!length || c < 0x100) fprintf(out, "\\x%02x", length ? c : *p);
        else fprintf(out, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        p += length ? length : 1;
    }
    fflush(out);
}
static void format_line(FILE *out, const char *format, va_list list) {
    char *line = 0, shorter[512];
    size_t size = 0;
    va_list again;
    va_copy(again, list);
    FILE *memory = open_memstream(&line, &size);
    if (memory) vfprintf(memory, format, list);
    if (!memory || fclose(memory)) {
        vsnprintf(shorter, sizeof shorter, format, again);
        put_line(out, shorter);
    } else put_line(out, line);
    va_end(again);
    free(line);
}
void error_line(const char *format, ...) {
    va_list list;
    va_start(list, format);
    format_line(stderr, format, list);
    va_end(list);
}
void report_line(const char *format, ...) {
    va_list list;
    FILE *out = *settings.report ? fopen(settings.report, "a") : stderr;
    if (!out) {
        error_line("rdna4sim: %s cannot be written (%s); reports go to standard error\n", settings.report, strerror(errno));
        *settings.report = 0, out = stderr;
    }
    va_start(list, format);
    format_line(out, format, list);
    va_end(list);
    if (out != stderr) fclose(out);
}
