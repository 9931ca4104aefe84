/* SPDX-License-Identifier: BSD-3-Clause */
#include "dpu_agent/life/agent.h"

#include <errno.h>

#include "base/log.h"
#include "registry/registry.h"

static struct soda_registry_follower *follower; /* the main thread's */

int soda_dpu_registry_find(struct soda_dpu_options *opt)
{
	static struct soda_members members; /* of opt->registered */
	struct soda_why why = { "" };
	int ret;

	if (!soda_registry_is_name(opt->server)) {
		if (!opt->etcd.ca && !opt->etcd.cert && !opt->etcd.key && !opt->etcd.user_file)
			return 0;
		soda_log_error("--etcd-ca, --etcd-cert, --etcd-key and --etcd-user are for "
			       "--server etcd://..., not for %s",
			       opt->server);
		return -EINVAL;
	}
	/* servers that are drained or end are members, too: programs have memory there */
	ret = soda_registry_resolve(opt->server, &opt->etcd, true, &members, &why);
	if (ret < 0)
		soda_log_error("--server: %s", why.text);
	else
		opt->registered = &members;
	return ret;
}

/* In the registry's thread. */
static void renew(void *arg, const struct soda_members *now)
{
	soda_dpu_servers_renew(arg, now);
}

int soda_dpu_registry_follow(struct soda_dpu *dpu)
{
	const struct soda_dpu_options *opt = dpu->opt;
	struct soda_why why = { "" };
	int ret;

	if (!opt->registered)
		return 0;
	ret = soda_registry_follow(opt->server, &opt->etcd, true, opt->registered, renew,
				   &dpu->sessions.servers, &follower, &why);
	if (ret < 0)
		soda_log_error("--server: %s", why.text);
	return ret;
}

void soda_dpu_registry_stop(void)
{
	soda_registry_unfollow(follower);
	follower = NULL;
}
