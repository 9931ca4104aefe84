/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory server of all processes of this `soda run`: a thread that starts it when the first one
 * asks, and again where it has died.  This process does it and not the one that asks, because that
 * may have limits, a control group, a priority or a root folder of its own.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/embedded.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/tree/tree.h"
#include "soda/run/parent.h"

struct serving {
	struct soda_tree *tree;
	const char *beside;
	int life_fd; /* keeps the server running; -1: there is none */
};

static void start(struct serving *s, uint32_t timeout_ms)
{
	char path[SODA_EMBEDDED_PATH], address[128], why[SODA_TREE_WHY];
	int before = s->life_fd, ret;

	s->life_fd = -1;
	if (!soda_embedded_find(getenv("SODA_MEM_SERVER"), s->beside, path)) {
		soda_tree_server_failed(s->tree,
					"soda-mem-server was not found beside the library or in "
					"the PATH: set SODA_MEM_SERVER to it, or name a running "
					"server with --server");
		return;
	}
	ret = soda_embedded_start(path, (int)timeout_ms, address, sizeof(address), &s->life_fd);
	if (ret) {
		snprintf(why, sizeof(why),
			 "the memory server of soda run, %.180s, did not start: %s", path,
			 soda_strerror(ret));
		soda_tree_server_failed(s->tree, why);
	} else {
		soda_tree_server_up(s->tree, address, s->life_fd);
	}
	if (before >= 0)
		close(before);
}

static void *serve(void *arg)
{
	struct serving *s = arg;

	for (;;) {
		uint32_t timeout_ms = soda_tree_server_asked(s->tree, SODA_RUN_SERVER_IDLE_MS);

		if (timeout_ms)
			start(s, timeout_ms);
	}
	return NULL;
}

void soda_run_serve(struct soda_tree *tree, const char *library)
{
	static struct serving serving;
	sigset_t all, before;
	pthread_t thread;
	int ret;

	serving = (struct serving){ .tree = tree, .beside = library, .life_fd = -1 };
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&thread, NULL, serve, &serving);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!ret)
		pthread_detach(thread);
	else
		soda_tree_server_none(tree);
}
