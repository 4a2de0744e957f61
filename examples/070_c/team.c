/* One helper beside the caller, who takes tasks, too. A program with a thread pool has this already. */
#include "team.h"

#include <pthread.h>
#include <stdlib.h>

struct team {
    pthread_t helper;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    void (*run)(void *state, int32_t task);
    void *state;
    int32_t next, tasks, running; /* tasks from next on are not begun */
    int stops;
};

/* With the mutex held: takes one task and runs it. */
static void run_one(team *t) {
    void (*const run)(void *, int32_t) = t->run;
    void *const state = t->state;
    const int32_t task = t->next++;
    t->running++;
    pthread_mutex_unlock(&t->mutex);
    run(state, task);
    pthread_mutex_lock(&t->mutex);
    t->running--;
    pthread_cond_broadcast(&t->changed);
}

static void *help(void *argument) {
    team *const t = argument;
    pthread_mutex_lock(&t->mutex);
    while (!t->stops) {
        if (t->next < t->tasks) {
            run_one(t);
        } else {
            pthread_cond_wait(&t->changed, &t->mutex);
        }
    }
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

team *team_start(void) {
    team *const t = calloc(1, sizeof *t);
    if (!t) {
        return NULL;
    }
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->changed, NULL);
    if (pthread_create(&t->helper, NULL, help, t) != 0) {
        free(t);
        return NULL;
    }
    return t;
}

void team_stop(team *t) {
    pthread_mutex_lock(&t->mutex);
    t->stops = 1;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
    pthread_join(t->helper, NULL);
    free(t);
}

void team_run(void *context, int32_t tasks, void (*run)(void *state, int32_t task), void *state) {
    team *const t = context;
    pthread_mutex_lock(&t->mutex);
    t->run = run;
    t->state = state;
    t->next = 0;
    t->tasks = tasks;
    pthread_cond_broadcast(&t->changed);
    while (t->next < t->tasks) {
        run_one(t);
    }
    while (t->running > 0) {
        pthread_cond_wait(&t->changed, &t->mutex);
    }
    pthread_mutex_unlock(&t->mutex);
}
