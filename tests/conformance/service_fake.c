/* SPDX-License-Identifier: BSD-3-Clause */
#include "service_fake.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "soda.h"
#include "transport/api/memory.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { UNIT = 64 << 10 };

int fake_patience(void)
{
	const char *text = getenv("SODA_TEST_PATIENCE");
	int n = text ? atoi(text) : 1;

	return n > 1 ? n : 1;
}

void fake_init(struct fake *f)
{
	memset(f, 0, sizeof(*f));
	f->client_id = 9;
	pthread_mutex_init(&f->lock, NULL);
}

static void region_close(struct fake_region *r)
{
	soda_memory_remove(r->memory, r->bytes);
	munmap(r->memory, r->bytes + r->dirty_bytes);
	close(r->fd);
	r->open = false;
}

/* The memory of the last ADVISE goes. */
static void forget_advised(struct fake *f)
{
	if (f->advised)
		munmap(f->advised, f->advised_bytes);
	if (f->advised_fd)
		close(f->advised_fd);
	f->advised = NULL;
	f->advised_fd = 0;
}

void fake_destroy(struct fake *f)
{
	assert(f->holds == 0);
	for (int i = 0; i < FAKE_REGIONS; i++)
		if (f->regions[i].open)
			region_close(&f->regions[i]);
	forget_advised(f);
	pthread_mutex_destroy(&f->lock);
}

unsigned fake_count(struct fake *f, const unsigned *counter)
{
	unsigned value;

	pthread_mutex_lock(&f->lock);
	value = *counter;
	pthread_mutex_unlock(&f->lock);
	return value;
}

static struct fake_region *find_locked(struct fake *f, uint16_t id)
{
	for (int i = 0; i < FAKE_REGIONS; i++)
		if (f->regions[i].open && f->regions[i].id == id)
			return &f->regions[i];
	return NULL;
}

struct fake_region *fake_find(struct fake *f, uint16_t region_id)
{
	struct fake_region *r;

	pthread_mutex_lock(&f->lock);
	r = find_locked(f, region_id);
	pthread_mutex_unlock(&f->lock);
	return r;
}

void fake_close_peers(struct fake *f)
{
	pthread_mutex_lock(&f->lock);
	for (int i = 0; i < FAKE_PEERS; i++)
		if (f->peers[i])
			soda_peer_close(f->peers[i]);
	pthread_mutex_unlock(&f->lock);
}

static int hello(void *svc, struct soda_peer *peer, const struct soda_wire_hello *h,
		 const struct soda_peer_info *info, struct soda_wire_welcome *welcome,
		 void **client_p, struct soda_why *why)
{
	struct fake *f = svc;

	if (h->chunk_bytes == FAKE_REFUSED_CHUNK) {
		snprintf(why->text, sizeof(why->text), "chunks of %u bytes are not liked\n\x1b",
			 h->chunk_bytes);
		return -EPERM;
	}
	if (h->kind == SODA_CONN_DATA && h->secret != FAKE_SECRET) {
		snprintf(why->text, sizeof(why->text), "unknown client");
		return -ESTALE;
	}
	welcome->instance_id = 5;
	welcome->client_id = f->client_id;
	welcome->secret = FAKE_SECRET;
	welcome->agent = f->asks ? SODA_WIRE_AGENT_ASKS : 0;
	pthread_mutex_lock(&f->lock);
	f->hellos++;
	for (int i = 0; i < FAKE_PEERS; i++) {
		if (!f->peers[i]) {
			f->peers[i] = peer;
			break;
		}
	}
	pthread_mutex_unlock(&f->lock);
	*client_p = f;
	return 0;
}

static int region_create(struct fake *f, struct fake_region *r, const struct soda_wire_open *o)
{
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

	*r = (struct fake_region){ .id = o->region_id };
	r->writable = !(o->flags & SODA_READ_ONLY);
	r->bytes = (o->bytes + (2u << 20) - 1) / (2u << 20) * (2u << 20);
	if (o->flags & SODA_WRITABLE)
		r->dirty_bytes = (r->bytes / UNIT + 4095) / 4096 * 4096;
	r->fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (r->fd < 0 || ftruncate(r->fd, (off_t)(r->bytes + r->dirty_bytes)) < 0)
		return -ENOMEM;
	r->memory =
		mmap(NULL, r->bytes + r->dirty_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (r->memory == MAP_FAILED)
		return -ENOMEM;
	for (uint64_t i = 0; i < r->bytes; i++)
		r->memory[i] = fake_byte(r->id, i);
	if (!r->writable)
		seals |= F_SEAL_FUTURE_WRITE;
	if (!f->unsealed)
		fcntl(r->fd, F_ADD_SEALS, seals);
	r->open = true;
	return f->tells ? soda_memory_add(r->memory, r->bytes) : 0;
}

static void share(const struct fake_region *r, struct soda_reply *reply)
{
	reply->share = (struct soda_share){ .fd = r->fd,
					    .bytes = r->bytes,
					    .dirty_bytes = r->dirty_bytes,
					    .memory = r->memory,
					    .writable = r->writable };
}

static int call_open(struct fake *f, const void *body, size_t bytes, struct soda_reply *reply)
{
	struct soda_wire_opened opened = { .file_id = 3, .generation = 4 };
	struct fake_region *r = NULL;
	struct soda_wire_open o;
	const char *name;
	int ret = soda_wire_get_open(body, bytes, &o, &name);

	if (ret < 0)
		return ret;
	if (find_locked(f, o.region_id)) {
		snprintf(reply->why.text, sizeof(reply->why.text), "region %u is open",
			 o.region_id);
		return -EBUSY;
	}
	for (int i = 0; i < FAKE_REGIONS && !r; i++)
		if (!f->regions[i].open)
			r = &f->regions[i];
	if (!r || region_create(f, r, &o) < 0)
		return -ENOMEM;
	opened.bytes = f->lie_about_size ? r->bytes * 2 : o.bytes;
	soda_wire_put_opened(reply->body, &opened);
	reply->bytes = SODA_WIRE_OPENED_BYTES;
	if (f->later)
		return 0; /* its regions are nobody's to map */
	share(r, reply);
	return 0;
}

static int call_key(struct fake *f, const void *body, size_t bytes, struct soda_reply *reply)
{
	const uint8_t *in = body;
	struct fake_region *r = bytes == 2 ? find_locked(f, (uint16_t)(in[0] | in[1] << 8)) : NULL;

	if (!r || f->later)
		return -EINVAL;
	share(r, reply);
	return 0;
}

static int call_close(struct fake *f, const void *body, size_t bytes)
{
	const uint8_t *in = body;
	struct fake_region *r = bytes == 2 ? find_locked(f, (uint16_t)(in[0] | in[1] << 8)) : NULL;

	if (!r)
		return -ENOENT;
	/* the client may know of an answer before the transport has released its memory */
	while (r->holds) {
		pthread_mutex_unlock(&f->lock);
		usleep(100);
		pthread_mutex_lock(&f->lock);
	}
	region_close(r);
	return 0;
}

/* A static cache: what was asked for and the page before it, in sealed memory. */
static int call_advise(struct fake *f, const void *body, size_t bytes, bool shares,
		       struct soda_reply *reply)
{
	struct soda_wire_advise a;
	struct soda_wire_advised got;

	if (soda_wire_get_advise(body, bytes, &a))
		return -EPROTO;
	if (a.advice != SODA_STATIC_CACHE || !shares)
		return 0;
	got = (struct soda_wire_advised){ a.offset - 4096, a.bytes + 4096 };
	forget_advised(f);
	f->advised_bytes = f->lie_about_size ? 4096 : got.bytes;
	f->advised_fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (ftruncate(f->advised_fd, (off_t)f->advised_bytes) < 0)
		return -ENOMEM;
	f->advised =
		mmap(NULL, f->advised_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->advised_fd, 0);
	for (uint64_t i = 0; i < f->advised_bytes; i++)
		f->advised[i] = fake_byte(a.region_id, got.offset + i);
	fcntl(f->advised_fd, F_ADD_SEALS, F_SEAL_SHRINK | (f->unsealed ? 0 : F_SEAL_FUTURE_WRITE));
	soda_wire_put_advised(reply->body, &got);
	reply->bytes = SODA_WIRE_ADVISED_BYTES;
	reply->share = (struct soda_share){ .fd = f->advised_fd,
					    .offset = got.offset,
					    .bytes = f->advised_bytes,
					    .memory = f->advised };
	return 0;
}

static int call(void *client, enum soda_msg type, const void *body, size_t bytes, bool shares,
		struct soda_reply *reply)
{
	struct fake *f = client;
	int ret = 0;

	pthread_mutex_lock(&f->lock);
	switch ((int)type) {
	case SODA_MSG_OPEN:
		ret = call_open(f, body, bytes, reply);
		break;
	case SODA_MSG_CLOSE:
		ret = call_close(f, body, bytes);
		break;
	case SODA_MSG_KEY:
		ret = call_key(f, body, bytes, reply);
		break;
	case SODA_MSG_ADVISE:
		ret = call_advise(f, body, bytes, shares, reply);
		break;
	case SODA_MSG_SERVICES + 16: /* FAKE_ECHO */
	case SODA_MSG_STATS:	     /* echoes, twice: for tests of long bodies */
		if (bytes * 2 > SODA_WIRE_MAX_CONTROL) {
			ret = -EFBIG;
			break;
		}
		memcpy(reply->body, body, bytes);
		memcpy(reply->body + bytes, body, bytes);
		reply->bytes = bytes * 2;
		break;
	case SODA_MSG_SYNC: /* takes its time: for tests of the time-out */
		pthread_mutex_unlock(&f->lock);
		usleep(300000 * (useconds_t)fake_patience());
		for (int i = 0; i < 300 && atomic_load(&f->holds_sync); i++)
			usleep(100000);
		return 0;
	case SODA_MSG_PING:
		break;
	default:
		ret = -ENOTSUP;
	}
	pthread_mutex_unlock(&f->lock);
	return ret;
}

int fake_translate(struct fake *f, bool write, uint16_t region_id, uint64_t page_offset,
		   uint32_t size, struct soda_span *span)
{
	struct fake_region *r;
	int ret = 0;

	pthread_mutex_lock(&f->lock);
	r = find_locked(f, region_id);
	if (!r)
		ret = -EINVAL;
	else
		ret = soda_wire_check_range(page_offset, size, r->bytes);
	if (ret == 0 && write && !r->writable)
		ret = -EACCES;
	if (ret == 0) {
		*span = (struct soda_span){ .memory = r->memory + page_offset * 4096,
					    .hold = r,
					    .offset = page_offset * 4096,
					    .bytes = size };
		r->holds++;
		f->holds++;
	}
	pthread_mutex_unlock(&f->lock);
	return ret;
}

static int translate(void *client, bool write, uint16_t region_id, uint64_t page_offset,
		     uint32_t size, struct soda_span *span)
{
	return fake_translate(client, write, region_id, page_offset, size, span);
}

static void release(void *client, bool write, const struct soda_span *span, bool landed)
{
	struct fake *f = client;
	struct fake_region *r = span->hold;

	pthread_mutex_lock(&f->lock);
	assert(r->holds > 0);
	r->holds--;
	f->holds--;
	if (!write)
		f->reads++;
	else if (landed)
		f->writes++;
	else
		f->torn++;
	pthread_mutex_unlock(&f->lock);
}

static void gone(void *client, struct soda_peer *peer)
{
	struct fake *f = client;

	if (f->later)
		fake_later_gone(f, peer);
	pthread_mutex_lock(&f->lock);
	f->gone++;
	for (int i = 0; i < FAKE_PEERS; i++)
		if (f->peers[i] == peer)
			f->peers[i] = NULL;
	pthread_mutex_unlock(&f->lock);
}

static void rejected(void *svc, const char *address, const char *why)
{
	struct fake *f = svc;

	pthread_mutex_lock(&f->lock);
	f->rejected++;
	snprintf(f->last_rejected, sizeof(f->last_rejected), "%s", why);
	pthread_mutex_unlock(&f->lock);
}

const struct soda_service fake_service = {
	.hello = hello,
	.call = call,
	.translate = translate,
	.release = release,
	.gone = gone,
	.rejected = rejected,
};

const struct soda_service fake_two_sided_service = {
	.hello = hello,
	.call = call,
	.reserve = fake_later_reserve,
	.release = fake_later_release,
	.gone = gone,
	.rejected = rejected,
	.request = fake_later_request,
	.doorbell = fake_later_doorbell,
};
