/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/cache/policy/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

static const struct soda_cache_policy *const builtin[] = {
	&soda_cache_policy_random,
	&soda_cache_policy_stream,
};

const struct soda_cache_policy *soda_cache_policy_builtin(const char *name)
{
	for (size_t i = 0; i < sizeof(builtin) / sizeof(builtin[0]); i++)
		if (strcmp(builtin[i]->name, name) == 0)
			return builtin[i];
	return NULL;
}

__attribute__((format(printf, 3, 4))) static int refuse(struct soda_why *why, int err,
							const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, args);
	va_end(args);
	return err;
}

static bool is_name(const char *name)
{
	size_t n = strlen(name);

	return n && n <= SODA_PLUGIN_NAME_MAX &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == n;
}

/* The file, opened, and checked to be what only the operator can have put there. */
static int open_trusted(const char *path, struct soda_why *why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err = errno;
	struct stat st;

	if (fd < 0)
		return refuse(why, -err,
			      "%s: %s: give the name of a built-in policy (random, stream)"
			      " or of a file NAME.so in --policy-dir",
			      path, soda_strerror(err));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return refuse(why, -EACCES, "%s: is no regular file", path);
	}
	if ((st.st_uid && st.st_uid != geteuid()) || (st.st_mode & (S_IWGRP | S_IWOTH))) {
		close(fd);
		return refuse(why, -EACCES,
			      "%s: must belong to root or to the agent's user, and be"
			      " writable for nobody else: see to chown and chmod",
			      path);
	}
	return fd;
}

static const char *fault_of(const struct soda_cache_policy *p, const char *name)
{
	if (!p)
		return "defines no " SODA_CACHE_POLICY_SYMBOL;
	if (p->abi != SODA_CACHE_POLICY_ABI || p->struct_bytes != sizeof(*p))
		return "was built for another version: build it anew";
	if (!p->name || strcmp(p->name, name) != 0)
		return "has another name than its file";
	if (!p->state_bytes || !p->init || !p->admit || !p->hit || !p->fill || !p->victim ||
	    !p->drop || !p->predict)
		return "lacks functions";
	return NULL;
}

static int load(int fd, const char *path, const char *name, struct soda_plugin *plugin_p,
		struct soda_why *why)
{
	struct soda_plugin plugin = { 0 };
	const char *fault;
	char self[32];

	/* The file that was checked, whatever the path leads to by now. */
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	plugin.handle = dlopen(self, RTLD_NOW | RTLD_LOCAL);
	if (!plugin.handle)
		return refuse(why, -ELIBACC, "%s: %s", path, dlerror());
	plugin.policy = dlsym(plugin.handle, SODA_CACHE_POLICY_SYMBOL);
	fault = fault_of(plugin.policy, name);
	if (fault) {
		dlclose(plugin.handle);
		return refuse(why, -EINVAL, "%s: %s", path, fault);
	}
	*plugin_p = plugin;
	return 0;
}

int soda_plugin_open(const char *dir, const char *name, struct soda_plugin *plugin_p,
		     struct soda_why *why)
{
	char path[4096];
	int fd, ret;

	if (!is_name(name))
		return refuse(why, -EINVAL,
			      "'%.64s' is no name of a policy: at most %d of a-z, 0-9,"
			      " '_' and '-'",
			      name, SODA_PLUGIN_NAME_MAX);
	*plugin_p = (struct soda_plugin){ .policy = soda_cache_policy_builtin(name) };
	if (plugin_p->policy)
		return 0;
	if (!dir || !*dir)
		return refuse(why, -ENOENT,
			      "'%s' is no built-in policy (random, stream), and there"
			      " is no --policy-dir: which directory has %s.so?",
			      name, name);
	if (snprintf(path, sizeof(path), "%s/%s.so", dir, name) >= (int)sizeof(path))
		return refuse(why, -EINVAL, "--policy-dir is too long");
	fd = open_trusted(path, why);
	if (fd < 0)
		return fd;
	ret = load(fd, path, name, plugin_p, why);
	close(fd);
	return ret;
}

void soda_plugin_close(struct soda_plugin *plugin)
{
	if (plugin->handle)
		dlclose(plugin->handle);
	*plugin = (struct soda_plugin){ 0 };
}
