/* Two threads of the program that wait for work. */
#ifndef TEAM_H
#define TEAM_H

#include <stdint.h>

typedef struct team team;

/* Null: no memory, or no thread could be started. */
team *team_start(void);
void team_stop(team *t);

/* Runs run(state, task) once for each task below `tasks`; returns when all have ended. As polyhead_executor wants it: `context` is a team.
 */
void team_run(void *context, int32_t tasks, void (*run)(void *state, int32_t task), void *state);

#endif
