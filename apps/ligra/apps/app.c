/* SPDX-License-Identifier: BSD-3-Clause */
#include "ligra/framework/app.h"

#include <string.h>

const struct app *const apps[] = {
	&app_bfs,   &app_pagerank, &app_radii,	  &app_bc,	     &app_components,
	&app_kcore, &app_mis,	   &app_triangle, &app_bellman_ford, NULL,
};

const struct app *app_find(const char *name)
{
	for (size_t i = 0; apps[i]; i++)
		if (!strcmp(apps[i]->name, name))
			return apps[i];
	return NULL;
}
