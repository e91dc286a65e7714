/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Implementation of skyhop_cc.h's interface for a module of the kernel's own build, NAME.ko: for kernels that take
 * no congestion controls from BPF.
 *
 * Loading the module registers nothing yet: it creates the file /proc/NAME. A process that opens the file and writes
 * a struct skyhop_registration registers the algorithm under the name in it, with its parameters, until the process
 * closes the file; open it again for another name and other parameters. Later writes are announcements, struct
 * skyhop_announcement; reads return phases, as many struct skyhop_told as there are and fit, perhaps none.
 *
 * A policy that decides for its connections reads and writes the same file at offset SKYHOP_DECIDING_AT (pread,
 * pwrite): struct skyhop_report, stored from the first such read on, and struct skyhop_decided. poll reports when
 * there are reports.
 *
 * The build has to define SKYHOP_HAS_TX_START if tcp_congestion_ops has cwnd_event_tx_start.
 */
#ifndef SKYHOP_KERNEL_MODULE_H
#define SKYHOP_KERNEL_MODULE_H

#include <linux/hashtable.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/proc_fs.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

/* The same capacities as the BPF map of announcements and the ring of phases. */
#define SKYHOP_MOST_ANNOUNCEMENTS 1024
#define SKYHOP_MOST_TOLD 1024
/* Connections with a decision, as many as the BPF map of decisions holds, and most unread reports. */
#define SKYHOP_MOST_DECIDED 65536
#define SKYHOP_MOST_REPORTS 4096
#define SKYHOP_DECIDED_BITS 10

/* Ring over an array: the positions of the entries not read yet. */
struct skyhop_ring {
	u32 begin;
	u32 len;
};

/* Registration of the algorithm under one name. Sockets may point to it after its file is closed: it is freed with
 * the module, which they keep loaded. */
struct skyhop_registered {
	struct tcp_congestion_ops ops;
	struct list_head others;
	spinlock_t lock; /* protects all fields below but the parameters */
	u64 params[SKYHOP_MOST_PARAMS];
	u32 announcements_len;
	struct skyhop_ring told_ring;
	struct skyhop_ring reports_ring;
	struct skyhop_announcement announcements[SKYHOP_MOST_ANNOUNCEMENTS];
	struct skyhop_told told[SKYHOP_MOST_TOLD];
	wait_queue_head_t reported;
	struct skyhop_report *reports; /* NULL: no process reads them */
	u32 decided_len;
	DECLARE_HASHTABLE(decided, SKYHOP_DECIDED_BITS);
};

/* Decision stored for a connection. */
struct skyhop_kept {
	struct hlist_node others;
	struct skyhop_decided said;
};

/* Sizes of the algorithm's parameters and state, from SKYHOP_MODULE. */
struct skyhop_shape {
	u64 params_len;
	size_t state_bytes;
};

static const struct tcp_congestion_ops skyhop_ops;
static const struct skyhop_shape skyhop_shape;
static LIST_HEAD(skyhop_all_registered);
static DEFINE_MUTEX(skyhop_one_writes);

/* ---- Interface for algorithms ---- */

/* The kernel has functions of these names for its own struct; algorithms mean those of minmax.h. */
#define minmax_running_max skyhop_minmax_running_max
#define minmax_running_min skyhop_minmax_running_min

static inline struct skyhop_registered *skyhop_registered(const struct sock *sk)
{
	return container_of(inet_csk(sk)->icsk_ca_ops, struct skyhop_registered, ops);
}

static inline void **skyhop_place_of_state(const struct sock *sk)
{
	return inet_csk_ca(sk);
}

#define skyhop_hz(sk) ((void)(sk), (u32)HZ)
#define skyhop_jiffies(sk) ((void)(sk), (u32)jiffies)
#define skyhop_now_ns(sk) ((void)(sk), (u64)ktime_get_ns())
#define skyhop_random(sk, n) ((void)(sk), get_random_u32() % (n))

/* Whether an announcement covers the destination; the longest prefix wins. */
static inline bool skyhop_is_within(const struct skyhop_signal_key *key, u64 netns_cookie, __be32 destination)
{
	u32 bits = key->prefix_bits - 64;
	__be32 prefix;

	if (memcmp(key->netns_cookie, &netns_cookie, sizeof(netns_cookie)))
		return false;
	memcpy(&prefix, key->ipv4, sizeof(prefix));
	return !bits || !((ntohl(prefix) ^ ntohl(destination)) >> (32 - bits));
}

static __maybe_unused bool skyhop_handover(struct sock *sk, struct skyhop_handover *handover)
{
	struct skyhop_registered *registered = skyhop_registered(sk);
	const struct skyhop_announcement *best = NULL;
	u64 netns_cookie = sock_net(sk)->net_cookie;
	u32 i;

	spin_lock_bh(&registered->lock);
	for (i = 0; i < registered->announcements_len; i++) {
		const struct skyhop_announcement *one = &registered->announcements[i];

		if (skyhop_is_within(&one->key, netns_cookie, sk->sk_daddr) &&
		    (!best || one->key.prefix_bits > best->key.prefix_bits))
			best = one;
	}
	if (best)
		*handover = best->handover;
	spin_unlock_bh(&registered->lock);
	return best;
}

/* Position for another entry; -1: the ring is full, and the entry is dropped. */
static __maybe_unused int skyhop_put(struct skyhop_ring *ring, u32 size)
{
	return ring->len < size ? (int)((ring->begin + ring->len++) % size) : -1;
}

/* Position of the oldest entry, which is removed; -1: there is none. */
static int skyhop_take(struct skyhop_ring *ring, u32 size)
{
	u32 place = ring->begin;

	if (!ring->len)
		return -1;
	ring->begin = (place + 1) % size;
	ring->len--;
	return (int)place;
}

/* If no process reads phases, the ring fills up and further ones are dropped. */
static __maybe_unused void skyhop_tell(struct sock *sk, u64 kind, u64 begin_ns, u64 end_ns)
{
	struct skyhop_registered *registered = skyhop_registered(sk);
	struct skyhop_told told = {
		.netns_cookie = sock_net(sk)->net_cookie,
		.phase = { begin_ns, end_ns, kind },
		.local_port = sk->sk_num,
		.remote_port = (__force u16)sk->sk_dport,
	};

	int place;

	spin_lock_bh(&registered->lock);
	place = skyhop_put(&registered->told_ring, SKYHOP_MOST_TOLD);
	if (place >= 0)
		registered->told[place] = told;
	spin_unlock_bh(&registered->lock);
}

/* The report is dropped if no process reads reports, or the ring is full. */
static __maybe_unused void skyhop_report(struct sock *sk, struct skyhop_report *report)
{
	struct skyhop_registered *registered = skyhop_registered(sk);
	int place;

	report->netns_cookie = sock_net(sk)->net_cookie;
	report->local_port = sk->sk_num;
	report->remote_port = (__force u16)sk->sk_dport;
	report->remote_ipv4 = (__force u32)sk->sk_daddr;
	spin_lock_bh(&registered->lock);
	place = registered->reports ? skyhop_put(&registered->reports_ring, SKYHOP_MOST_REPORTS) : -1;
	if (place >= 0)
		registered->reports[place] = *report;
	spin_unlock_bh(&registered->lock);
	if (place >= 0)
		wake_up_interruptible(&registered->reported);
}

/* Called with the lock held. */
static struct skyhop_kept *skyhop_find_decided(struct skyhop_registered *registered, u64 id)
{
	struct skyhop_kept *kept;

	hash_for_each_possible(registered->decided, kept, others, id)
		if (kept->said.id == id)
			return kept;
	return NULL;
}

static __maybe_unused bool skyhop_decision(struct sock *sk, u64 id, struct skyhop_decision *decision)
{
	struct skyhop_registered *registered = skyhop_registered(sk);
	const struct skyhop_kept *kept;

	spin_lock_bh(&registered->lock);
	kept = skyhop_find_decided(registered, id);
	if (kept)
		*decision = kept->said.decision;
	spin_unlock_bh(&registered->lock);
	return kept;
}

#define SKYHOP_REPORTS struct skyhop_reports_are_in_the_file

#define SKYHOP_PARAM_INDEX(name, scale, initial, least, most, unit, about) SKYHOP_PARAM_INDEX_##name,
#define SKYHOP_PARAMS(LIST) enum { LIST(SKYHOP_PARAM_INDEX) SKYHOP_PARAMS_LEN }
#define SKYHOP_NO_PARAMS enum { SKYHOP_PARAMS_LEN }
#define skyhop_param(sk, name) (skyhop_registered(sk)->params[SKYHOP_PARAM_INDEX_##name])

#define SKYHOP_STATE(state_type)                                                                          \
	enum { SKYHOP_STATE_BYTES = sizeof(state_type) };                                                 \
	static inline __maybe_unused state_type *skyhop_state(struct sock *sk)                            \
	{                                                                                                 \
		return *skyhop_place_of_state(sk);                                                        \
	}                                                                                                 \
	static inline __maybe_unused state_type *skyhop_state_create(struct sock *sk)                     \
	{                                                                                                 \
		return *skyhop_place_of_state(sk);                                                        \
	}                                                                                                 \
	struct skyhop_state_is_allocated
#define SKYHOP_NO_STATE enum { SKYHOP_STATE_BYTES = 0 }

#define skyhop_bits(p, field) ((p)->field)

#define SKYHOP_HOOK_3(result, function, ...)                                                              \
	enum { function##_is_a_hook = 1 };                                                                \
	static result function(__VA_ARGS__)
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 10, 0)
/* cong_control is the only hook with four arguments; kernels before 6.10 pass its first and its last. */
#define SKYHOP_HOOK_4(result, function, ...)                                                              \
	enum { function##_is_a_hook = 1 };                                                                \
	static result function##_hook(__VA_ARGS__);                                                       \
	static result function(struct sock *sk, const struct rate_sample *rs)                             \
	{                                                                                                 \
		return function##_hook(sk, 0, 0, rs);                                                     \
	}                                                                                                 \
	static result function##_hook(__VA_ARGS__)
#else
#define SKYHOP_HOOK_4 SKYHOP_HOOK_3
#endif
#define SKYHOP_PICK(a1, a2, a3, a4, picked, ...) picked
#define SKYHOP_HOOK(result, function, ...)                                                                \
	SKYHOP_PICK(__VA_ARGS__, SKYHOP_HOOK_4, SKYHOP_HOOK_3, SKYHOP_HOOK_3, SKYHOP_HOOK_3, 0)           \
	(result, function, __VA_ARGS__)
#define SKYHOP_FN(function) (function##_is_a_hook ? (function) : (function))

/* ---- A connection's beginning and end ---- */

static void skyhop_begin(struct sock *sk)
{
	size_t size = skyhop_shape.state_bytes;

	*skyhop_place_of_state(sk) = size ? kzalloc(size, GFP_ATOMIC) : NULL;
	if (skyhop_ops.init)
		skyhop_ops.init(sk);
}

static void skyhop_end(struct sock *sk)
{
	if (skyhop_ops.release)
		skyhop_ops.release(sk);
	kfree(*skyhop_place_of_state(sk));
	*skyhop_place_of_state(sk) = NULL;
}

#ifdef SKYHOP_HAS_TX_START
/* Kernels from 7.1 on have a hook of its own for this event. */
static void skyhop_tx_start(struct sock *sk)
{
	skyhop_ops.cwnd_event(sk, CA_EVENT_TX_START);
}
#endif

/* ---- The module's file ---- */

static int skyhop_register(struct file *file, const char __user *buffer)
{
	struct skyhop_registration wanted;
	struct skyhop_registered *made;
	int refused;

	if (copy_from_user(&wanted, buffer, sizeof(wanted)))
		return -EFAULT;
	if (wanted.params_len != skyhop_shape.params_len || wanted.name[sizeof(wanted.name) - 1])
		return -EINVAL;
	made = kvzalloc(sizeof(*made), GFP_KERNEL);
	if (!made)
		return -ENOMEM;
	memcpy(&made->ops, &skyhop_ops, sizeof(made->ops));
	memcpy(made->ops.name, wanted.name, sizeof(made->ops.name));
	memcpy(made->params, wanted.params, sizeof(made->params));
	made->ops.owner = THIS_MODULE;
	made->ops.init = skyhop_begin;
	made->ops.release = skyhop_end;
#ifdef SKYHOP_HAS_TX_START
	if (skyhop_ops.cwnd_event)
		made->ops.cwnd_event_tx_start = skyhop_tx_start;
#endif
	spin_lock_init(&made->lock);
	init_waitqueue_head(&made->reported);
	hash_init(made->decided);
	refused = tcp_register_congestion_control(&made->ops);
	if (refused) {
		kvfree(made);
		return refused;
	}
	list_add(&made->others, &skyhop_all_registered);
	/* An open file of /proc does not hold a reference to the module. */
	__module_get(THIS_MODULE);
	file->private_data = made;
	return 0;
}

/* Replace the announcement of the same scope, or withdraw it. */
static int skyhop_announce(struct skyhop_registered *registered, const char __user *buffer)
{
	struct skyhop_announcement said;
	u32 *len = &registered->announcements_len;
	int refused = 0;
	u32 i;

	if (copy_from_user(&said, buffer, sizeof(said)))
		return -EFAULT;
	if (said.key.prefix_bits < 64 || said.key.prefix_bits > 96)
		return -EINVAL;
	spin_lock_bh(&registered->lock);
	for (i = 0; i < *len; i++)
		if (!memcmp(&registered->announcements[i].key, &said.key, sizeof(said.key)))
			break;
	if (!said.handover.valid) {
		if (i < *len)
			registered->announcements[i] = registered->announcements[--*len];
	} else if (i < SKYHOP_MOST_ANNOUNCEMENTS) {
		registered->announcements[i] = said;
		*len = max_t(u32, *len, i + 1);
	} else {
		refused = -ENOSPC;
	}
	spin_unlock_bh(&registered->lock);
	return refused;
}

/* Called with the lock held. */
static void skyhop_forget(struct skyhop_registered *registered, struct skyhop_kept *kept)
{
	hash_del(&kept->others);
	kfree(kept);
	registered->decided_len--;
}

/* Drop decisions until there is room for another; the policy has to decide again for their connections. */
static void skyhop_make_room(struct skyhop_registered *registered)
{
	struct skyhop_kept *kept;
	struct hlist_node *next;
	int bucket;

	hash_for_each_safe(registered->decided, bucket, next, kept, others) {
		if (registered->decided_len < SKYHOP_MOST_DECIDED)
			return;
		skyhop_forget(registered, kept);
	}
}

/* Replace the decision for a connection, or drop it. */
static int skyhop_decide(struct skyhop_registered *registered, const char __user *buffer)
{
	struct skyhop_kept *kept, *made;
	struct skyhop_decided said;
	bool is_known;

	if (copy_from_user(&said, buffer, sizeof(said)))
		return -EFAULT;
	spin_lock_bh(&registered->lock);
	kept = skyhop_find_decided(registered, said.id);
	is_known = kept;
	if (kept && said.decision.report_ns)
		kept->said = said;
	else if (kept)
		skyhop_forget(registered, kept);
	spin_unlock_bh(&registered->lock);
	if (is_known || !said.decision.report_ns)
		return 0;
	/* No other writer can add one meanwhile: skyhop_one_writes is held. */
	made = kzalloc(sizeof(*made), GFP_KERNEL);
	if (!made)
		return -ENOMEM;
	made->said = said;
	spin_lock_bh(&registered->lock);
	skyhop_make_room(registered);
	hash_add(registered->decided, &made->others, said.id);
	registered->decided_len++;
	spin_unlock_bh(&registered->lock);
	return 0;
}

static ssize_t skyhop_write(struct file *file, const char __user *buffer, size_t size, loff_t *at)
{
	struct skyhop_registered *registered;
	int refused = -EINVAL;

	mutex_lock(&skyhop_one_writes);
	registered = file->private_data;
	if (!registered && size == sizeof(struct skyhop_registration))
		refused = skyhop_register(file, buffer);
	else if (registered && *at == SKYHOP_DECIDING_AT && size == sizeof(struct skyhop_decided))
		refused = skyhop_decide(registered, buffer);
	else if (registered && *at != SKYHOP_DECIDING_AT && size == sizeof(struct skyhop_announcement))
		refused = skyhop_announce(registered, buffer);
	mutex_unlock(&skyhop_one_writes);
	return refused ? refused : size;
}

static bool skyhop_take_told(struct skyhop_registered *registered, struct skyhop_told *told)
{
	int place;

	spin_lock_bh(&registered->lock);
	place = skyhop_take(&registered->told_ring, SKYHOP_MOST_TOLD);
	if (place >= 0)
		*told = registered->told[place];
	spin_unlock_bh(&registered->lock);
	return place >= 0;
}

static bool skyhop_take_report(struct skyhop_registered *registered, struct skyhop_report *report)
{
	int place;

	spin_lock_bh(&registered->lock);
	place = skyhop_take(&registered->reports_ring, SKYHOP_MOST_REPORTS);
	if (place >= 0)
		*report = registered->reports[place];
	spin_unlock_bh(&registered->lock);
	return place >= 0;
}

/* Allocate the ring of reports, which is filled from now on. */
static int skyhop_keep_reports(struct skyhop_registered *registered)
{
	int refused = 0;

	mutex_lock(&skyhop_one_writes);
	if (!registered->reports) {
		struct skyhop_report *made = kvcalloc(SKYHOP_MOST_REPORTS, sizeof(*made), GFP_KERNEL);

		refused = made ? 0 : -ENOMEM;
		spin_lock_bh(&registered->lock);
		registered->reports = made;
		spin_unlock_bh(&registered->lock);
	}
	mutex_unlock(&skyhop_one_writes);
	return refused;
}

static ssize_t skyhop_read_reports(struct skyhop_registered *registered, char __user *buffer, size_t size)
{
	struct skyhop_report report;
	size_t done = 0;
	int refused = skyhop_keep_reports(registered);

	if (refused)
		return refused;
	while (size - done >= sizeof(report) && skyhop_take_report(registered, &report)) {
		if (copy_to_user(buffer + done, &report, sizeof(report)))
			return -EFAULT;
		done += sizeof(report);
	}
	return done;
}

static ssize_t skyhop_read(struct file *file, char __user *buffer, size_t size, loff_t *at)
{
	struct skyhop_registered *registered = READ_ONCE(file->private_data);
	struct skyhop_told told;
	size_t done = 0;

	if (!registered)
		return -EINVAL;
	if (*at == SKYHOP_DECIDING_AT)
		return skyhop_read_reports(registered, buffer, size);
	while (size - done >= sizeof(told) && skyhop_take_told(registered, &told)) {
		if (copy_to_user(buffer + done, &told, sizeof(told)))
			return -EFAULT;
		done += sizeof(told);
	}
	return done;
}

static __poll_t skyhop_poll(struct file *file, struct poll_table_struct *table)
{
	struct skyhop_registered *registered = READ_ONCE(file->private_data);

	if (!registered)
		return EPOLLERR;
	poll_wait(file, &registered->reported, table);
	return READ_ONCE(registered->reports_ring.len) ? EPOLLIN | EPOLLRDNORM : 0;
}

/* Drop all decisions and reports, because the policy has closed the file. */
static void skyhop_forget_decided(struct skyhop_registered *registered)
{
	struct skyhop_report *reports;
	struct skyhop_kept *kept;
	struct hlist_node *next;
	int bucket;

	spin_lock_bh(&registered->lock);
	hash_for_each_safe(registered->decided, bucket, next, kept, others)
		skyhop_forget(registered, kept);
	registered->reports_ring.len = 0;
	reports = registered->reports;
	registered->reports = NULL;
	spin_unlock_bh(&registered->lock);
	kvfree(reports);
}

static int skyhop_close(struct inode *inode, struct file *file)
{
	struct skyhop_registered *registered = file->private_data;

	if (registered) {
		tcp_unregister_congestion_control(&registered->ops);
		skyhop_forget_decided(registered);
		module_put(THIS_MODULE);
	}
	return 0;
}

static const struct proc_ops skyhop_file = {
	.proc_read = skyhop_read,
	.proc_write = skyhop_write,
	.proc_poll = skyhop_poll,
	.proc_release = skyhop_close,
	.proc_lseek = noop_llseek,
};

static int __init skyhop_load(void)
{
	return proc_create(KBUILD_MODNAME, 0600, NULL, &skyhop_file) ? 0 : -EEXIST;
}

/* A module is unloaded only when no file holds a registration and no socket is left. */
static void __exit skyhop_unload(void)
{
	struct skyhop_registered *one, *next;

	remove_proc_entry(KBUILD_MODNAME, NULL);
	list_for_each_entry_safe(one, next, &skyhop_all_registered, others)
		kvfree(one);
}

#define SKYHOP_MODULE(id, about, ...)                                                                     \
	SKYHOP_CHECK_NAME(id);                                                                            \
	_Static_assert(SKYHOP_PARAMS_LEN <= SKYHOP_MOST_PARAMS, "it has too many parameters");            \
	static const struct tcp_congestion_ops skyhop_ops = { .name = #id, __VA_ARGS__ };                 \
	static const struct skyhop_shape skyhop_shape = { SKYHOP_PARAMS_LEN, SKYHOP_STATE_BYTES };        \
	module_init(skyhop_load);                                                                         \
	module_exit(skyhop_unload);                                                                       \
	MODULE_DESCRIPTION(about);                                                                        \
	MODULE_LICENSE("Dual MIT/GPL")

#endif
