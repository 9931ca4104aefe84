/* SPDX-License-Identifier: BSD-3-Clause */
#include "fuzz/fixtures/calls.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "soda.h"
#include "transport/listen/server.h"
#include "wire/pool.h"
#include "wire/proof.h"

enum { PEERS = 6, IDENTITIES = 4, BATCH_MAX = 8, PATIENCE_S = 30, OPS_MAX = 200 };

struct peer {
	struct soda_peer base; /* first */
	bool used, control;
	/* guarded by lock */
	bool busy, closing, gone;
};

struct identity {
	uint64_t id, secret, epoch;
};

/* A READ or WRITE and its answer. */
struct ask {
	struct soda_request rq; /* first */
	bool done;		/* guarded by lock */
	bool freed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct peer peers[PEERS];
static struct identity identities[IDENTITIES];
static unsigned identities_n;
static pthread_t ender;

/* Connections that the daemon closes end in a thread of the transport's, not while they are in use.
 */

static struct peer *to_end_locked(void)
{
	for (struct peer *p = peers; p < peers + PEERS; p++)
		if (p->used && p->closing && !p->busy && !p->gone)
			return p;
	return NULL;
}

static void *end_closed(void *arg)
{
	struct peer *p;

	pthread_mutex_lock(&lock);
	for (;;) {
		while (!(p = to_end_locked()))
			pthread_cond_wait(&changed, &lock);
		p->gone = true;
		p->busy = true;
		pthread_mutex_unlock(&lock);
		fuzz_service->gone(p->base.client, &p->base);
		pthread_mutex_lock(&lock);
		p->busy = p->used = false;
		pthread_cond_broadcast(&changed);
	}
	return NULL;
}

static void peer_close(struct soda_peer *base)
{
	pthread_mutex_lock(&lock);
	((struct peer *)base)->closing = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static const struct soda_peer_ops peer_ops = { .close = peer_close };

/* For the length of a callback. NULL: it is none, or about to end. */
static struct peer *acquire(unsigned which)
{
	struct peer *p = &peers[which % PEERS];

	pthread_mutex_lock(&lock);
	if (!p->used || p->closing || p->busy)
		p = NULL;
	else
		p->busy = true;
	pthread_mutex_unlock(&lock);
	return p;
}

static void unacquire(struct peer *p)
{
	pthread_mutex_lock(&lock);
	p->busy = false;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* HELLO */

static struct peer *free_peer(void)
{
	struct peer *found = NULL;

	pthread_mutex_lock(&lock);
	for (struct peer *p = peers; p < peers + PEERS && !found; p++)
		if (!p->used)
			found = p;
	if (found) {
		memset(found, 0, sizeof(*found));
		found->used = found->busy = true;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

static void remember(const struct soda_wire_welcome *w, uint64_t epoch)
{
	unsigned i = 0;

	while (i < identities_n && identities[i].id != w->client_id)
		i++;
	if (i == IDENTITIES)
		i = 0;
	identities[i] = (struct identity){ w->client_id, w->secret, epoch };
	if (i == identities_n)
		identities_n++;
}

static void hello(const struct soda_wire_hello *h)
{
	struct soda_peer_info info = { .address = "fuzz", .local = true, .uid = geteuid() };
	struct soda_wire_welcome w = { .version = SODA_WIRE_VERSION,
				       .max_data = SODA_WIRE_MAX_DATA };
	struct soda_why why = { "" };
	struct peer *p = free_peer();
	void *client = NULL;
	int ret;

	if (!p)
		return;
	p->base = (struct soda_peer){ .ops = &peer_ops, .fd = -1, .info = info };
	p->control = h->kind == SODA_CONN_CONTROL;
	ret = fuzz_service->hello(fuzz_svc, &p->base, h, &info, &w, &client, &why);
	MUST(ret <= 0 && (ret == 0 || why.text[0]));
	pthread_mutex_lock(&lock);
	p->base.client = client;
	p->busy = false;
	if (ret < 0)
		p->used = false;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	if (ret == 0 && p->control)
		remember(&w, h->epoch);
}

static void hello_new(struct fuzz_input *in)
{
	uint8_t chunk = fuzz_u8(in);

	hello(&(struct soda_wire_hello){ .magic = SODA_WIRE_MAGIC,
					 .version = SODA_WIRE_VERSION,
					 .kind = SODA_CONN_CONTROL,
					 .chunk_bytes = chunk == 255 ? 0 : 4096u << chunk % 12,
					 .epoch = 1 });
}

static void hello_known(struct fuzz_input *in)
{
	const struct identity *who = &identities[fuzz_u8(in) % IDENTITIES];
	uint8_t kind = fuzz_u8(in);
	int8_t epoch = (int8_t)fuzz_u8(in);
	uint8_t secret = fuzz_u8(in);

	hello(&(struct soda_wire_hello){ .magic = SODA_WIRE_MAGIC,
					 .version = SODA_WIRE_VERSION,
					 .kind = 1 + kind % 2,
					 .features = kind >> 4,
					 .chunk_bytes = 4096u << (kind >> 1 & 7),
					 .client_id = who->id,
					 .secret = secret == 255 ? who->secret + 1 : who->secret,
					 .epoch = epoch == -128 ? UINT64_MAX
								: who->epoch + (uint64_t)epoch });
}

static void hello_raw(struct fuzz_input *in)
{
	uint8_t text[SODA_WIRE_HELLO_BYTES] = { 0 };
	struct soda_wire_hello h;

	fuzz_take(in, text, sizeof(text));
	MUST(soda_wire_get_hello(text, sizeof(text), &h) == 0);
	/* what the transport lets through */
	h.magic = SODA_WIRE_MAGIC;
	h.version = SODA_WIRE_VERSION;
	h.kind = 1 + h.kind % 2;
	hello(&h);
}

/* Calls */

static void call(unsigned which, uint8_t type, const void *body, size_t bytes)
{
	static uint8_t answer[SODA_WIRE_MAX_CONTROL];
	struct soda_reply reply = { .body = answer, .share = { .fd = -1 } };
	struct soda_wire_frame frame = { .type = type, .length = (uint32_t)bytes };
	struct peer *p = acquire(which);
	uint8_t *copy;
	int ret;

	if (!p)
		return;
	if (p->control && soda_control_is_call(&frame)) {
		copy = malloc(bytes + !bytes); /* what reads beyond it is seen */
		MUST(copy);
		memcpy(copy, body, bytes);
		ret = fuzz_service->call(p->base.client, type, copy, bytes, which & 128, &reply);
		frame = soda_control_frame(ret, &reply);
		MUST(ret <= 0 && frame.length <= SODA_WIRE_MAX_CONTROL);
		MUST(ret == 0 || frame.length);
		free(copy);
	}
	unacquire(p);
}

static void call_raw(struct fuzz_input *in)
{
	uint8_t which = fuzz_u8(in), type = fuzz_u8(in);
	size_t n = fuzz_u16(in);

	n = n < in->left ? n : in->left;
	call(which, type, in->at, n);
	in->at += n;
	in->left -= n;
}

static const char *const names[] = { "",       "small",	      "large",	  "empty",
				     "sub",    "sub/deep",    "../small", "link",
				     "absent", "/etc/passwd", ".",	  "sub/../small" };
enum { NAMES = sizeof(names) / sizeof(*names) };

static void call_open(struct fuzz_input *in)
{
	uint8_t which = fuzz_u8(in), region = fuzz_u8(in), flags = fuzz_u8(in), name;
	struct soda_wire_open open = { .region_id = region % 4, .flags = flags & 31 };
	uint8_t body[SODA_WIRE_OPEN_BYTES + 32] = { 0 };

	open.bytes = fuzz_u32(in);
	if (region & 128)
		open.bytes <<= 20;
	name = fuzz_u8(in) % NAMES;
	open.name_bytes = (uint16_t)strlen(names[name]);
	soda_wire_put_open(body, &open);
	memcpy(body + SODA_WIRE_OPEN_BYTES, names[name], open.name_bytes);
	call(which, SODA_MSG_OPEN, body, SODA_WIRE_OPEN_BYTES + open.name_bytes);
}

static void call_simple(struct fuzz_input *in)
{
	static const uint8_t types[] = { SODA_MSG_CLOSE, SODA_MSG_SYNC,	 SODA_MSG_KEY,
					 SODA_MSG_LIST,	 SODA_MSG_STATS, SODA_MSG_WRITTEN,
					 SODA_MSG_BYE,	 SODA_MSG_PING,	 SODA_MSG_TOKEN };
	uint8_t which = fuzz_u8(in), type = fuzz_u8(in) % sizeof(types), region = fuzz_u8(in);
	uint8_t id[SODA_WIRE_TOKEN_ASK_BYTES] = { region % 4, 0 };

	if (types[type] == SODA_MSG_TOKEN && region & 4)
		call(which, SODA_MSG_TOKEN, id, sizeof(id));
	else
		call(which, types[type], id, type < 4 ? 2 : region & 1);
}

/* What an open file has, or that of a name. */
static void ask_content(unsigned which, uint8_t region, const char *name)
{
	uint8_t body[SODA_WIRE_TELL_BYTES + SODA_WIRE_OPEN_BYTES + 32];
	const struct soda_wire_open ask = { .region_id = region % 4,
					    .name_bytes = (uint16_t)strlen(name),
					    .bytes = region & 128 ? 4096 : 0 };

	soda_wire_put_tell(body, &(struct soda_wire_tell){ .ask = SODA_WIRE_POOL_CONTENT });
	soda_wire_put_open(body + SODA_WIRE_TELL_BYTES, &ask);
	memcpy(body + SODA_WIRE_TELL_BYTES + SODA_WIRE_OPEN_BYTES, name, ask.name_bytes);
	call(which, SODA_MSG_POOL, body,
	     SODA_WIRE_TELL_BYTES + SODA_WIRE_OPEN_BYTES + ask.name_bytes);
}

static void call_name(struct fuzz_input *in)
{
	uint8_t which = fuzz_u8(in), region = fuzz_u8(in), body[2 + 255] = { region % 4, 0 };
	size_t n = fuzz_u8(in);

	if (region & 32 && n < NAMES) {
		ask_content(which, region, names[n]);
		return;
	}
	if (region & 32 && n >= SODA_WIRE_TELL_BYTES) { /* a program tells of its pool */
		n = fuzz_take(in, body, n);
		call(which, SODA_MSG_POOL, body, n);
		return;
	}
	if (region & 64 && n < NAMES) { /* a name that call_open has, too */
		memcpy(body + 2, names[n], strlen(names[n]));
		n = strlen(names[n]);
	} else {
		n = fuzz_take(in, body + 2, n);
	}
	call(which, region & 64 ? SODA_MSG_PUBLISH : SODA_MSG_NAME, body, 2 + n);
}

static void call_range(struct fuzz_input *in, bool advise)
{
	uint8_t which = fuzz_u8(in), region = fuzz_u8(in);
	uint8_t body[SODA_WIRE_ADVISE_BYTES + SODA_WIRE_STORE_AS_BYTES];
	uint8_t advice = advise ? fuzz_u8(in) : 0;
	uint64_t offset = (uint64_t)fuzz_u16(in) * SODA_WIRE_PAGE;
	uint64_t bytes = (uint64_t)fuzz_u16(in) * SODA_WIRE_PAGE;

	if (region & 64) {
		struct soda_wire_store ask = { .region_id = region % 4,
					       .part = (uint16_t)(offset / SODA_WIRE_PAGE) };

		ask.as.client_id = region & 32 ? bytes / SODA_WIRE_PAGE : 0;
		call(which, SODA_MSG_STORE, body, (uint32_t)soda_wire_put_store(body, &ask));
		return;
	}
	if (region & 128)
		offset = UINT64_MAX - offset + 1;
	if (advise)
		soda_wire_put_advise(
			body, &(struct soda_wire_advise){ region % 4, advice % 16, offset, bytes });
	else
		soda_wire_put_discard(body,
				      &(struct soda_wire_discard){ region % 4, offset, bytes });
	call(which, advise ? SODA_MSG_ADVISE : SODA_MSG_DISCARD, body, sizeof(body));
}

/* READs and WRITEs */

/* It can be read. */
static void look_at(const volatile uint8_t *at, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i += 512)
		(void)at[i];
}

static void request_done(struct soda_request *rq, int status, const struct soda_span *span)
{
	struct ask *a = (struct ask *)rq;

	MUST(status <= 0 && !a->done);
	if (!rq->write && status == 0) {
		MUST(span && span->bytes == rq->bytes && (!span->stored || rq->stored));
		if (!span->stored)
			look_at(span->memory, span->bytes);
		fuzz_service->release(rq->client, false, span, false);
	}
	pthread_mutex_lock(&lock);
	a->done = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void request_free(struct soda_request *rq)
{
	pthread_mutex_lock(&lock);
	((struct ask *)rq)->freed = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static const struct soda_request_ops request_ops = { .done = request_done, .free = request_free };

/* An answer comes; what is written may stay with the daemon. */
static void await(struct ask *a)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	pthread_mutex_lock(&lock);
	while (!a->done || (a->rq.write && !a->freed))
		MUST(pthread_cond_timedwait(&changed, &lock, &until) == 0);
	pthread_mutex_unlock(&lock);
}

static void one_sided(struct peer *p, bool write, uint16_t region, uint64_t page, uint32_t size)
{
	struct soda_span span;
	int ret = fuzz_service->translate(p->base.client, write, region, page, size, &span);

	MUST(ret <= 0);
	if (ret < 0)
		return;
	MUST(span.bytes == size);
	for (uint32_t i = 0; write && i < size; i += 512)
		span.memory[i] = 1;
	look_at(span.memory, size);
	fuzz_service->release(p->base.client, write, &span, write);
}

/* False: the daemon has refused it, or has no memory. */
static bool prepare(struct peer *p, struct ask *a, bool write, uint16_t region, uint64_t page,
		    uint32_t size)
{
	struct soda_span span = { .memory = NULL };

	if (write && fuzz_service->reserve(p->base.client, &p->base, region, page, size, &span) < 0)
		return false;
	*a = (struct ask){ .rq = { .ops = &request_ops,
				   .client = p->base.client,
				   .peer = &p->base,
				   .offset = page * SODA_WIRE_PAGE,
				   .bytes = size,
				   .region_id = region,
				   .write = write,
				   .data = span.memory,
				   .hold = span.hold } };
	for (uint32_t i = 0; write && i < size; i += 512)
		span.memory[i] = 2;
	return true;
}

static void transfer(struct fuzz_input *in)
{
	struct peer *p = acquire(fuzz_u8(in));
	unsigned n = 1 + fuzz_u8(in) % BATCH_MAX, asked = 0;
	uint16_t region = fuzz_u8(in) % 4;
	struct ask asks[BATCH_MAX];

	for (unsigned i = 0; i < n; i++) {
		uint64_t page = fuzz_u16(in);
		uint32_t size = (1u + fuzz_u8(in) % 64) * SODA_WIRE_PAGE;
		uint8_t kind = fuzz_u8(in);

		if (kind & 128)
			page = 0xffffffffffff - page;
		if (!p || p->control)
			continue;
		if (!fuzz_service->request)
			one_sided(p, kind & 1, region, page, size);
		else if (prepare(p, &asks[asked], kind & 1, region, page, size)) {
			asks[asked].rq.told = kind & 2;
			asks[asked].rq.stored = kind & 4;
			asks[asked].rq.residency.after = kind;
			fuzz_service->request(p->base.client, &asks[asked++].rq);
		}
	}
	if (asked)
		fuzz_service->doorbell(p->base.client, &p->base);
	for (unsigned i = 0; i < asked; i++)
		await(&asks[i]);
	if (p)
		unacquire(p);
}

/* Ends */

static void finish(unsigned which)
{
	struct peer *p = &peers[which % PEERS];

	pthread_mutex_lock(&lock);
	if (p->used)
		p->closing = true;
	pthread_cond_broadcast(&changed);
	while (p->used)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void step(struct fuzz_input *in)
{
	uint8_t what = fuzz_u8(in) % 11;

	switch (what) {
	case 0:
		hello_new(in);
		break;
	case 1:
		hello_known(in);
		break;
	case 2:
		hello_raw(in);
		break;
	case 3:
		call_raw(in);
		break;
	case 4:
		call_open(in);
		break;
	case 5:
		call_simple(in);
		break;
	case 6:
		call_name(in);
		break;
	case 7:
	case 8:
		call_range(in, what == 7);
		break;
	case 9:
		transfer(in);
		break;
	default:
		finish(fuzz_u8(in));
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	fuzz_quiet();
	fuzz_service_start();
	MUST(pthread_create(&ender, NULL, end_closed, NULL) == 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };

	identities_n = 0;
	memset(identities, 0, sizeof(identities));
	fuzz_export_restore();
	fuzz_service_begin(&in);
	for (int i = 0; i < OPS_MAX && in.left; i++)
		step(&in);
	for (unsigned i = 0; i < PEERS; i++)
		finish(i);
	fuzz_service_end();
	return 0;
}
