/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cache policies by name: the built-in ones, and shared objects NAME.so of the
 * operator's directory.  A name never leads out of the directory: it is made of
 * a-z, 0-9, '_' and '-'.  A shared object runs with all rights of the agent, so that it
 * must belong to root or to the agent's user, and nobody else may write to it.
 */
#ifndef SODA_DPU_PLUGIN_H
#define SODA_DPU_PLUGIN_H

#include "soda_cache_policy.h"
#include "transport/api/transport.h"

extern const struct soda_cache_policy soda_cache_policy_random, soda_cache_policy_stream;

/* A built-in policy by name; NULL: there is none of that name. */
const struct soda_cache_policy *soda_cache_policy_builtin(const char *name);

struct soda_plugin {
	const struct soda_cache_policy *policy;
	void *handle; /* of dlopen; NULL: built in */
};

enum { SODA_PLUGIN_NAME_MAX = 64 };

/*
 * dir may be NULL: only built-in ones.  -EINVAL: not a valid name, or an object
 * that is no policy of this version; -ENOENT: no such file; -EACCES: the file is another user's, or
 * others may write to it; -ELIBACC: it cannot be loaded.  why says what to do.
 */
int soda_plugin_open(const char *dir, const char *name, struct soda_plugin *plugin_p,
		     struct soda_why *why);
/* The caller uses the policy no more. */
void soda_plugin_close(struct soda_plugin *plugin);

#endif
