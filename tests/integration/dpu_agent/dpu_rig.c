/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "dpu_rig.h"
#include "lib/peer.h"

void rig_start_server(struct rig *r, const char *listen)
{
	assert_int_equal(SERVER_START(&r->server, "--listen", listen, "--capacity", "256M",
				      "--export", r->dir, "--drain", "1s"),
			 0);
	memcpy(r->server_address, r->server.address, sizeof(r->server_address));
}

void rig_start_agent(struct rig *r, const char *listen)
{
	const char *args[] = { "--listen", listen, "--server",	r->server_address,
			       "--drain",  "1s",   "--timeout", "15s",
			       "--grace",  "2s",   r->mode,	NULL };

	assert_int_equal(agent_start(&r->agent, args), 0);
	memcpy(r->agent_address, r->agent.address, sizeof(r->agent_address));
}

void rig_up(struct rig *r, const char *mode)
{
	*r = (struct rig){ .mode = mode };
	snprintf(r->dir, sizeof(r->dir), "/tmp/soda-dpu-XXXXXX");
	assert_non_null(mkdtemp(r->dir));
	rig_start_server(r, "tcp://127.0.0.1:0");
	rig_start_agent(r, "tcp://127.0.0.1:0");
}

void rig_down(struct rig *r, int agent_status)
{
	char path[128];

	if (r->agent.pid)
		assert_int_equal(server_stop(&r->agent), agent_status);
	server_forget(&r->agent);
	assert_int_equal(server_stop(&r->server), 0);
	server_forget(&r->server);
	snprintf(path, sizeof(path), "%s/file", r->dir);
	unlink(path);
	rmdir(r->dir);
}
