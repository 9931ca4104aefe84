/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NUMA node of a network device, as sysfs tells it: of the device, of the bus devices that it
 * hangs from, or of what lies below it (a VLAN, a bond).  SODA_NODE_ANY: not known.
 */
#ifndef SODA_NIC_H
#define SODA_NIC_H

#include "base/numa/numa_node.h"
#include "transport/api/transport.h"

/* A directory of sysfs, links followed. */
int soda_nic_node_of_path(const char *path);
/* A network interface. */
int soda_nic_node_of_interface(const char *name);
/* The interface that has the local address of a connected socket, and its name. */
int soda_nic_node_of_socket(int fd, char name[SODA_DEVICE_NAME]);

#endif
