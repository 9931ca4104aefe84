/* SPDX-License-Identifier: BSD-3-Clause */
/* `soda run` as the parent of the program: as little different from the program itself as it can.
 */
#ifndef SODA_TOOL_RUN_PARENT_H
#define SODA_TOOL_RUN_PARENT_H

struct soda_tree;
struct soda_registry_login;

/* Where the program's servers are registered. */
struct soda_run_registry {
	const char *name; /* etcd://... */
	const struct soda_registry_login *login;
};

/*
 * Run the program as a child that gets the signals of this process and ends with it, if this one
 * is killed, until it has ended.  The child's status as of waitpid(2), or -1 with one line on
 * standard error.  What this process starts afterwards has no libsoda-run.so.  tree: what the
 * program shares with its children, for whom this process starts one memory server when the first
 * of them asks for it, or NULL; library: the path of libsoda-run.so; registry: with a tree, where
 * this process looks which servers there are, until it ends, or NULL.
 */
int soda_run_as_child(const char *program, char **argv, struct soda_tree *tree, const char *library,
		      const struct soda_run_registry *registry);
/* server.c: be ready to start that server, until this process ends. */
void soda_run_serve(struct soda_tree *tree, const char *library);
/* watch.c: look for servers that come, and tell those of the tree; until soda_run_unwatch(). */
void soda_run_watch(struct soda_tree *tree, const struct soda_run_registry *registry);
void soda_run_unwatch(void);
/* A status of waitpid(2) as shells have it: the exit status, or 128 + the signal. */
int soda_run_status(int status);
/*
 * What to exit with where the child has ended with that status of waitpid(2). Ends this process by
 * the signal that has ended the child.
 */
int soda_run_end_as(int status);

#endif
