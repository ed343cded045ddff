/* lost.c: what happens when somebody shortens a model file that is in use. Reading a mapped page that the file no
 * longer has raises SIGBUS; nothing can be computed any more, so the process says so and ends. */
#define _GNU_SOURCE
#include "host.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static char text[512];

static void lost(int signal)
{
    (void)signal;
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        _exit(1); /* nowhere to say it */
    _exit(1);
}

void ie_on_lost_pages(const char *message)
{
    strncpy(text, message, sizeof text - 1);
    struct sigaction action = {.sa_handler = lost};
    sigaction(SIGBUS, &action, NULL);
}
