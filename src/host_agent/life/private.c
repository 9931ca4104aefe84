/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/embedded.h"
#include "base/log.h"
#include "base/own_fd.h"
#include "host_agent/life/start.h"

int (*soda_private_shared)(const char *program, int timeout_ms, char *address, size_t address_bytes,
			   int *life_fd_p, struct soda_why *why);

static int life_fd = -1; /* our end of the pipe whose end-of-file ends the server */

int soda_private_start(const char *program, int timeout_ms, char *address, size_t address_bytes,
		       struct soda_why *why)
{
	int ret = soda_private_shared ? soda_private_shared(program, timeout_ms, address,
							    address_bytes, &life_fd, why)
				      : -ENOENT;
	char path[SODA_EMBEDDED_PATH];
	Dl_info self;

	life_fd = soda_fd_own(life_fd);
	if (ret != -ENOENT)
		return ret;
	if (!soda_embedded_find(program,
				dladdr((void *)soda_private_start, &self) ? self.dli_fname : NULL,
				path)) {
		snprintf(why->text, sizeof(why->text),
			 "soda-mem-server was not found beside the library or in the PATH: set "
			 "SODA_MEM_SERVER to it, or SODA_SERVER to a running server");
		return -ENOENT;
	}
	ret = soda_embedded_start(path, timeout_ms, address, address_bytes, &life_fd);
	life_fd = soda_fd_own(life_fd);
	if (ret)
		snprintf(why->text, sizeof(why->text),
			 "the private memory server %.180s did not start: %s", path,
			 soda_strerror(ret));
	return ret;
}

bool soda_private_started(void)
{
	return life_fd >= 0;
}

void soda_private_stop(void)
{
	soda_fd_close(life_fd);
	life_fd = -1;
}
