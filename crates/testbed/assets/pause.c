/* Holds a pod's namespaces: collects what its containers leave behind, ends when told to. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { (void)signal; exit(0); }

static void collect(int signal)
{
    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
}

int main(void)
{
    struct sigaction collecting = {.sa_handler = collect, .sa_flags = SA_NOCLDSTOP};
    sigaction(SIGCHLD, &collecting, NULL);
    signal(SIGINT, end);
    signal(SIGTERM, end);
    for (;;) pause();
}
