/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Structs and functions that a congestion control may use, on its three targets: the Linux kernel through BPF (clang
 * -target bpf, struct_ops), the simulator (the host's compiler, hosted by crates/cc), and a module of a kernel without
 * struct_ops, such as guests boot (the kernel's own build: kernel_module.h).
 *
 * An algorithm is one file, cc/<name>.c, with these parts in this order:
 *
 *     #include "skyhop_cc.h"
 *     #define NAME_PARAMS(P) P(beta, 1024, 717, 1, 1023, "", "what the window is multiplied by after a loss")
 *     SKYHOP_PARAMS(NAME_PARAMS);           or SKYHOP_NO_PARAMS;
 *     struct name { ... };
 *     SKYHOP_STATE(struct name);            or SKYHOP_NO_STATE;
 *     SKYHOP_HOOK(u32, name_ssthresh, struct sock *sk) { ... }
 *     SKYHOP_MODULE(name, "one line about it", .ssthresh = SKYHOP_FN(name_ssthresh), ...);
 *
 * Your own file, at any place, has the same parts (docs/tutorials/first-cc.md). Linux requires ssthresh, undo_cwnd, and one of
 * cong_avoid (PRR sets the window during recovery) and cong_control (it sets window and pacing at all times).
 *
 * It may include the headers next to this file (minmax.h, pacing.h, hystart.h, cubic_curve.h, flight.h, cubic_core.h,
 * bbr_core.h, bbr23_core.h). It needs no #ifdef for its target: everything that differs between the targets is below.
 * The kernel's verifier checks the file, so it has no floats and no unbounded loops, masks array indexes with a power
 * of two, and compares the pointer that skyhop_state() returns with NULL before it uses it.
 */
#ifndef SKYHOP_CC_H
#define SKYHOP_CC_H

#ifdef __KERNEL__
#include <linux/version.h>
#include <net/tcp.h>
#elif defined(__bpf__)
#include <linux/types.h>
#include <linux/bpf.h>
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
#define true 1
#define false 0
#ifndef NULL
#define NULL ((void *)0)
#endif
/* CO-RE: every access to a field carries its name, and the loader inserts the offset of the running kernel. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
#define SKYHOP_BITS(width) : width
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;
typedef int32_t s32;
typedef long long s64;
/* Bit fields are whole integers here: the layout is skyhop's own, and Rust has no bit fields. */
#define SKYHOP_BITS(width)
#endif

/* ---- The kernel's structs: the subset that algorithms need. Names, types and meaning are Linux's. ----
 *
 * crates/cc/src/bindings.rs is generated from here to "For the algorithm's file", and from struct skyhop_host to
 * struct skyhop_module, comments included: a test there says how.
 */

#ifndef __KERNEL__
/* Windowed minimum or maximum: the three best samples, each with the time at which it was taken. */
struct minmax_sample {
	u32 t;
	u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

#ifdef __bpf__
struct net {
	u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	u32 skc_daddr;
	u16 skc_dport; /* in network order, skc_num not */
	u16 skc_num;
	u16 skc_family;
	possible_net_t skc_net;
};
#endif

struct sock {
#ifdef __bpf__
	struct sock_common __sk_common;
#endif
	unsigned long sk_pacing_rate;     /* bytes per second */
	unsigned long sk_max_pacing_rate; /* bytes per second; ~0 is none */
	u32 sk_pacing_status;             /* enum sk_pacing */
	u32 sk_gso_max_size;              /* most bytes of one burst */
	int sk_sndbuf;                    /* bytes */
	u8 sk_pacing_shift;               /* a burst is about sk_pacing_rate >> sk_pacing_shift bytes */
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	u32 icsk_rto;                /* jiffies */
	u8 icsk_ca_state SKYHOP_BITS(5); /* enum tcp_ca_state: read it with tcp_ca_state() */
	u8 icsk_retransmits;         /* timeouts in a row without progress */
	u8 icsk_backoff;
	u64 icsk_ca_priv[13];        /* the host stores its pointer here: use skyhop_state() instead */
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u64 tcp_clock_cache;   /* ns, as of the last look at the clock */
	u64 tcp_mstamp;        /* us, as of the last look at the clock */
	u64 tcp_wstamp_ns;     /* ns: when pacing releases the next packet */
	u64 delivered_mstamp;  /* us: when `delivered` last grew */
	u64 first_tx_mstamp;   /* us: start of the window of the current rate sample */
	u64 bytes_acked;
	u64 bytes_sent;
	u32 snd_una;           /* sequence numbers, in bytes */
	u32 snd_nxt;
	u32 write_seq;
	u32 high_seq;          /* snd_nxt when recovery began */
	u32 mss_cache;         /* bytes of payload per packet */
	u32 snd_wnd;           /* bytes */
	u32 snd_cwnd;          /* packets, like all counts below unless said otherwise */
	u32 snd_cwnd_cnt;      /* packets acknowledged since cwnd last grew by one */
	u32 snd_cwnd_clamp;
	u32 snd_cwnd_stamp;    /* jiffies */
	u32 snd_ssthresh;
	u32 prior_cwnd;        /* cwnd just before the last reduction */
	u32 prior_ssthresh;
	u32 srtt_us;           /* us, times 8 */
	u32 mdev_us;           /* us, times 4 */
	u32 mdev_max_us;
	u32 rttvar_us;         /* us, times 4 */
	struct minmax rtt_min; /* us: windowed minimum */
	u32 packets_out;       /* sent and not cumulatively acknowledged */
	u32 retrans_out;
	u32 sacked_out;
	u32 lost_out;
	u32 max_packets_out;   /* largest packets_out of the last window */
	u32 cwnd_usage_seq;
	u32 delivered;         /* in total, each packet once */
	u32 delivered_ce;
	u32 lost;              /* in total */
	u32 app_limited;       /* `delivered` at which the application-limited phase ends; 0: not limited */
	u32 rate_delivered;
	u32 rate_interval_us;
	u32 total_retrans;
	u32 data_segs_out;     /* segments sent with data, retransmissions included */
	u32 reordering;
	u32 undo_marker;
	int undo_retrans;
	u32 lsndtime;          /* jiffies: when data was last sent */
	u8 is_cwnd_limited SKYHOP_BITS(1); /* the last window was used up: read it with skyhop_bits() */
};

/* Round trip measured by one ACK. */
struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us;    /* negative: unknown */
	u32 in_flight; /* when the acknowledged packet was sent */
};

/* Delivery rate measured by one ACK (draft-cheng-iccrg-delivery-rate-estimation). */
struct rate_sample {
	u64 prior_mstamp;       /* us: start of the interval */
	u32 prior_delivered;    /* tp->delivered at the start */
	u32 prior_delivered_ce;
	s32 delivered;          /* packets delivered over the interval; negative: invalid */
	s32 delivered_ce;
	long interval_us;       /* negative: invalid */
	u32 snd_interval_us;
	u32 rcv_interval_us;
	long rtt_us;            /* of the last (S)ACKed packet; negative: unknown */
	int losses;             /* packets marked lost on this ACK */
	u32 acked_sacked;       /* packets newly (S)ACKed on this ACK */
	u32 prior_in_flight;    /* before this ACK */
	u32 last_end_seq;
	bool is_app_limited;
	bool is_retrans;
	bool is_ack_delayed;
};

enum tcp_ca_state {
	TCP_CA_Open = 0,
	TCP_CA_Disorder = 1,
	TCP_CA_CWR = 2,
	TCP_CA_Recovery = 3,
	TCP_CA_Loss = 4,
};

enum tcp_ca_event {
	CA_EVENT_TX_START,     /* a packet is sent when none is in flight */
	CA_EVENT_CWND_RESTART, /* the window restarts after idle */
	CA_EVENT_COMPLETE_CWR, /* an episode of CWR or Recovery ended */
	CA_EVENT_LOSS,         /* a timeout */
	CA_EVENT_ECN_NO_CE,    /* a packet arrived without an ECN mark: only with TCP_CONG_NEEDS_ECN */
	CA_EVENT_ECN_IS_CE,    /* a packet arrived with an ECN mark: only with TCP_CONG_NEEDS_ECN */
};

/* Flags that in_ack_event receives. */
enum tcp_ca_ack_event_flags {
	CA_ACK_SLOWPATH = 1 << 0,   /* more than an advance in sequence: SACKs, another window, ECE */
	CA_ACK_WIN_UPDATE = 1 << 1, /* the ACK advances, or opens the window */
	CA_ACK_ECE = 1 << 2,        /* the receiver echoes an ECN mark */
};
#endif

/* Flags that cong_control receives in `flag` (tcp_input.c). The simulator's ACKs carry no data. */
enum tcp_ack_flags {
	FLAG_DATA = 0x01,
	FLAG_WIN_UPDATE = 0x02,         /* the ACK advances, or opens the window */
	FLAG_DATA_ACKED = 0x04,         /* the ACK acknowledges data */
	FLAG_RETRANS_DATA_ACKED = 0x08, /* some of the acknowledged data was retransmitted */
	FLAG_SYN_ACKED = 0x10,
	FLAG_DATA_SACKED = 0x20,        /* a segment was newly SACKed */
	FLAG_ECE = 0x40,                /* the receiver echoes an ECN mark */
	FLAG_LOST_RETRANS = 0x80,       /* the ACK shows that a retransmission was lost */
	FLAG_SLOWPATH = 0x100,          /* as CA_ACK_SLOWPATH */
	FLAG_ORIG_SACK_ACKED = 0x200,   /* a segment that was sent only once arrived */
	FLAG_SND_UNA_ADVANCED = 0x400,
	FLAG_DSACKING_ACK = 0x800,      /* the ACK carries a D-SACK */
	FLAG_SET_XMIT_TIMER = 0x1000,   /* the transmission timer was rearmed */
	FLAG_SACK_RENEGING = 0x2000,
	FLAG_UPDATE_TS_RECENT = 0x4000,
	FLAG_NO_CHALLENGE_ACK = 0x8000,
	FLAG_ACK_MAYBE_DELAYED = 0x10000, /* the receiver may have delayed the ACK */
	FLAG_DSACK_TLP = 0x20000,         /* the D-SACK is about a loss probe */
};

#ifndef __KERNEL__
enum sk_pacing {
	SK_PACING_NONE = 0,
	SK_PACING_NEEDED = 1,
	SK_PACING_FQ = 2,
};

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*set_state)(struct sock *sk, u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event ev);
	void (*in_ack_event)(struct sock *sk, u32 flags);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	u32 (*min_tso_segs)(struct sock *sk);
	/* kernels before 6.10 pass (sk, rs) only */
	void (*cong_control)(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs);
	u32 (*undo_cwnd)(struct sock *sk);
	u32 (*sndbuf_expand)(struct sock *sk);
	/* never called: the kernel does not call it for BPF modules */
	u64 (*get_info)(struct sock *sk, u32 ext, int *attr, void *info);
	char name[16];
	u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
};

#ifdef __bpf__
#pragma clang attribute pop
#endif

#define TCP_CONG_NON_RESTRICTED 0x1 /* any user may choose it */
#define TCP_CONG_NEEDS_ECN 0x2      /* the connection requests ECN, and the module receives its events */
#define TCP_INFINITE_SSTHRESH 0x7fffffff
#define TCP_INIT_CWND 10
#define USEC_PER_MSEC 1000UL
#define USEC_PER_SEC 1000000UL
#define NSEC_PER_USEC 1000UL
#define NSEC_PER_MSEC 1000000UL
#define NSEC_PER_SEC 1000000000UL
#endif

/* ---- Announced handovers ---- */

enum skyhop_handover_kind {
	SKYHOP_HANDOVER_END = 0,          /* a terminal changes its satellite */
	SKYHOP_HANDOVER_INTERMEDIATE = 1, /* the route changes between the ends */
	SKYHOP_HANDOVER_UNKNOWN = 2,
};

struct skyhop_handover {
	u64 at_ns;     /* on the clock of skyhop_now_ns() */
	u64 outage_ns; /* how long the link is expected to be down */
	u64 error_ns;  /* largest error of at_ns, either way */
	u32 kind;      /* enum skyhop_handover_kind */
	u32 valid;     /* 0: nothing is announced */
};

/* ---- Phases: actions of a module that are reported to observers ---- */

enum skyhop_phase_kind {
	SKYHOP_HOLD = 0,      /* the window is not reduced */
	SKYHOP_DRAIN = 1,     /* the window is closed, so that no queue builds up */
	SKYHOP_PROBE_RTT = 2, /* the window stays closed to measure the RTT of the new path */
	SKYHOP_FALLBACK = 3,  /* without a decision for too long: the base algorithm governs from the end of this phase on */
};

struct skyhop_phase {
	u64 begin_ns; /* on the clock of skyhop_now_ns() */
	u64 end_ns;
	u64 kind; /* enum skyhop_phase_kind */
};

/* ---- Structs that kernel modules and the loader exchange, in BPF maps or through a module's file ---- */

/* Key of an announcement: network namespace and, within it, an IPv4 prefix of the destination. A prefix length of 64
 * bits is the whole namespace; up to 96 it includes bits of the destination. */
struct skyhop_signal_key {
	u32 prefix_bits;
	u8 netns_cookie[8];
	u8 ipv4[4];
};

/* Phase and the connection that it belongs to. */
struct skyhop_told {
	u64 netns_cookie;
	struct skyhop_phase phase;
	u16 local_port;
	u16 remote_port; /* in network order */
	u32 unused;
};

/* ---- Reports of a connection and decisions for it, which policy.c exchanges with an external policy ---- */

/* State of a connection at the end of a report interval. Counters count from the start of the connection, so that a
 * reader who misses a report finds their increase in the next one. Units are packets, unless noted otherwise. */
struct skyhop_report {
	u64 id;               /* of the connection, drawn at random */
	u64 netns_cookie;     /* 0 in the simulator */
	u64 at_ns;            /* on the clock of skyhop_now_ns() */
	u64 began_ns;         /* when the interval began */
	u64 pacing_rate;      /* bytes per second; all ones: there is no bound */
	u64 bytes_acked;
	u64 bytes_sent;       /* retransmissions included */
	u64 rate_sum;         /* sum of the interval's delivery rate samples: packets per us, times SKYHOP_RATE_ONE */
	u64 rtt_sum_us;       /* sum of the RTT samples of the interval */
	struct skyhop_handover handover;
	u32 rate_samples;     /* number of delivery rate samples in the interval */
	u32 rtt_samples;
	u32 rtt_least_us;
	u32 rtt_most_us;
	u32 rtt_first_us;
	u32 rtt_last_us;
	u32 srtt_us;
	u32 mdev_us;          /* mean deviation (TCP_INFO calls it rttvar) */
	u32 rttvar_us;        /* a quarter of the term that the RTO adds to srtt, lower bound included */
	u32 min_rtt_us;       /* windowed minimum of TCP; all ones: unknown */
	u32 delivered;
	u32 delivered_ce;
	u32 lost;
	u32 retransmitted;
	u32 sent;             /* segments with data, retransmissions included */
	u32 acks;             /* number of ACKs in the interval */
	u32 rate_packets;     /* packets delivered in TCP's own delivery rate sample, */
	u32 rate_interval_us; /* and the duration of that sample; 0: there is none */
	u32 cwnd;
	u32 ssthresh;
	u32 packets_out;
	u32 sacked_out;
	u32 lost_out;
	u32 retrans_out;
	u32 mss;              /* bytes */
	u32 state;            /* enum tcp_ca_state */
	u32 flags;            /* SKYHOP_APP_LIMITED ... */
	u32 unused;           /* explicit padding: BPF must not copy out uninitialised gaps */
	u16 local_port;
	u16 remote_port;      /* in network order */
	u32 remote_ipv4;      /* in network order */
};

/* Bits of `flags`. */
#define SKYHOP_APP_LIMITED 0x1  /* the application had nothing to send */
#define SKYHOP_CWND_LIMITED 0x2 /* the window was used up */
#define SKYHOP_OBEYS 0x4        /* decisions govern; otherwise the base algorithm does */
#define SKYHOP_LAST_REPORT 0x8  /* the connection ends */

struct skyhop_decision {
	u64 report_ns;   /* at_ns of the report that the decision answers; 0: there is no decision */
	u64 pacing_rate; /* bytes per second; 0: derived from the window */
	u32 cwnd;        /* packets; 0: unchanged */
	u32 factor;      /* factor of the window, times SKYHOP_FACTOR_ONE; 0: none */
};

/* Decision for a connection, written to a module's file at the offset SKYHOP_DECIDING_AT, from which its reports are
 * read. A decision that answers no report withdraws the earlier one. */
struct skyhop_decided {
	u64 id;
	struct skyhop_decision decision;
};

#define SKYHOP_DECIDING_AT 4096

#define SKYHOP_FACTOR_ONE 1024
#define SKYHOP_RATE_ONE 16777216

/* First message written to a module's file: the name to register, and the parameters in the order of the module's
 * table. */
#define SKYHOP_MOST_PARAMS 64

struct skyhop_registration {
	char name[16];
	u64 params_len;
	u64 params[SKYHOP_MOST_PARAMS];
};

/* Later messages to a module's file. A handover that is not valid withdraws the announcement. */
struct skyhop_announcement {
	struct skyhop_signal_key key;
	struct skyhop_handover handover;
};

/* ---- For the algorithm's file: the same interface on all targets ----
 *
 * SKYHOP_PARAMS(LIST)   LIST(P) has one line per parameter:
 *                       P(name, scale, initial, least, most, unit, "one line about it")
 *                       All are whole numbers. A user writes value / scale (0.7 for 717 / 1024). The unit is
 *                       "", "ns", "us", "ms", "s", "packets", ... or names to choose from: "published|freeze".
 * skyhop_param(sk, name)          value of the parameter, u64; (s64)skyhop_param(sk, name) if it may be negative
 * SKYHOP_STATE(type)              state of each connection: one `type`, zeroed at the start
 * skyhop_state(sk)                pointer to the state; may be NULL (the verifier requires the check)
 * skyhop_state_create(sk)         the same for init: creates the state if there is none
 * skyhop_hz(sk), skyhop_jiffies(sk)   Linux's coarse clock: ticks per second, current tick
 * skyhop_now_ns(sk)               monotonic clock, on which announcements are timed
 * skyhop_random(sk, n)            random number, 0 <= random < n
 * skyhop_handover(sk, &handover)  copies the announced handover; false: no announcement
 * skyhop_tell(sk, kind, begin_ns, end_ns)   reports a phase to observers, once its end is known
 * SKYHOP_REPORTS                  declares that an external policy decides, for the next two:
 * skyhop_report(sk, &report)      sends a report, after it fills in its netns_cookie and addresses
 * skyhop_decision(sk, id, &decision)   copies the newest decision; false: no decision
 * SKYHOP_HOOK(type, name, ...) {} defines a hook of tcp_congestion_ops
 * SKYHOP_MODULE(name, about, .hook = SKYHOP_FN(function), ...)   defines the module; name is that of the file
 */

#ifdef __KERNEL__
#include "kernel_module.h"
#elif defined(__bpf__)
/* ---- In the kernel, through BPF ---- */

#define SEC(name) __attribute__((section(name), used))
#define SKYHOP_UNUSED __attribute__((unused))

SKYHOP_UNUSED static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
SKYHOP_UNUSED static u64 (*const bpf_ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
SKYHOP_UNUSED static u64 (*const bpf_jiffies64)(void) = (void *)BPF_FUNC_jiffies64;
SKYHOP_UNUSED static u32 (*const bpf_get_prandom_u32)(void) = (void *)BPF_FUNC_get_prandom_u32;
SKYHOP_UNUSED static long (*const bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) =
	(void *)BPF_FUNC_ringbuf_output;
SKYHOP_UNUSED static void *(*const bpf_sk_storage_get)(void *map, void *sk, void *value, u64 flags) =
	(void *)BPF_FUNC_sk_storage_get;

/* BPF cannot see the kernel's ticks per second: the loader sets them before it loads the module. */
const volatile u32 skyhop_hz_of_kernel = 1000;

#define skyhop_hz(sk) ((void)(sk), (u32)skyhop_hz_of_kernel)
#define skyhop_jiffies(sk) ((void)(sk), (u32)bpf_jiffies64())
#define skyhop_now_ns(sk) ((void)(sk), bpf_ktime_get_ns())
#define skyhop_random(sk, n) ((void)(sk), bpf_get_prandom_u32() % (n))

#define SKYHOP_PARAM_GLOBAL(name, scale, initial, least, most, unit, about) \
	const volatile u64 skyhop_param_##name = (initial);
#define SKYHOP_PARAMS(LIST) LIST(SKYHOP_PARAM_GLOBAL) struct skyhop_params_are_globals
#define SKYHOP_NO_PARAMS struct skyhop_params_are_globals
#define skyhop_param(sk, name) ((void)(sk), (u64)skyhop_param_##name)

#define SKYHOP_STATE(state_type)                                                                          \
	struct {                                                                                          \
		int(*type)[BPF_MAP_TYPE_SK_STORAGE];                                                      \
		int(*map_flags)[BPF_F_NO_PREALLOC];                                                       \
		int *key;                                                                                 \
		state_type *value;                                                                        \
	} skyhop_states SEC(".maps");                                                                     \
	static inline SKYHOP_UNUSED state_type *skyhop_state(struct sock *sk)                             \
	{                                                                                                 \
		return bpf_sk_storage_get(&skyhop_states, sk, NULL, 0);                                   \
	}                                                                                                 \
	static inline SKYHOP_UNUSED state_type *skyhop_state_create(struct sock *sk)                      \
	{                                                                                                 \
		return bpf_sk_storage_get(&skyhop_states, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);         \
	}                                                                                                 \
	struct skyhop_state_is_stored
#define SKYHOP_NO_STATE struct skyhop_state_is_stored

/* The position of a bit field differs between kernels, so the loader inserts the shifts, too. */
#define SKYHOP_FIELD_INFO(p, field, what) __builtin_preserve_field_info((p)->field, what)
#define skyhop_bits(p, field)                                                                             \
	({                                                                                                \
		const void *at_ = (const char *)(p) + SKYHOP_FIELD_INFO(p, field, 0 /* byte offset */);   \
		u64 bits_ = 0;                                                                            \
		asm volatile("" : "=r"(at_) : "0"(at_));                                                  \
		switch (SKYHOP_FIELD_INFO(p, field, 1 /* byte size */)) {                                 \
		case 1: bits_ = *(const u8 *)at_; break;                                                  \
		case 2: bits_ = *(const u16 *)at_; break;                                                 \
		case 4: bits_ = *(const u32 *)at_; break;                                                 \
		case 8: bits_ = *(const u64 *)at_; break;                                                 \
		}                                                                                         \
		bits_ <<= SKYHOP_FIELD_INFO(p, field, 4 /* left shift */);                                \
		bits_ >>= SKYHOP_FIELD_INFO(p, field, 5 /* right shift */);                               \
		bits_;                                                                                    \
	})

struct {
	int(*type)[BPF_MAP_TYPE_LPM_TRIE];
	int(*map_flags)[BPF_F_NO_PREALLOC];
	int(*max_entries)[1024];
	struct skyhop_signal_key *key;
	struct skyhop_handover *value;
} skyhop_signals SEC(".maps");

static inline bool skyhop_handover(struct sock *sk, struct skyhop_handover *handover)
{
	struct skyhop_signal_key key = { .prefix_bits = 96 };
	struct skyhop_handover *found;
	u64 cookie = sk->__sk_common.skc_net.net->net_cookie;
	u32 destination = sk->__sk_common.skc_daddr;

	__builtin_memcpy(key.netns_cookie, &cookie, sizeof(key.netns_cookie));
	__builtin_memcpy(key.ipv4, &destination, sizeof(key.ipv4));
	found = bpf_map_lookup_elem(&skyhop_signals, &key);
	if (!found || !found->valid)
		return false;
	*handover = *found;
	return true;
}

/* Phases for observers. If no process reads them, the ring fills up and further phases are dropped. */
struct {
	int(*type)[BPF_MAP_TYPE_RINGBUF];
	int(*max_entries)[64 * 1024];
} skyhop_phases SEC(".maps");

SKYHOP_UNUSED static inline void skyhop_tell(struct sock *sk, u64 kind, u64 begin_ns, u64 end_ns)
{
	struct skyhop_told told = {
		.netns_cookie = sk->__sk_common.skc_net.net->net_cookie,
		.phase = { begin_ns, end_ns, kind },
		.local_port = sk->__sk_common.skc_num,
		.remote_port = sk->__sk_common.skc_dport,
	};

	bpf_ringbuf_output(&skyhop_phases, &told, sizeof(told), BPF_RB_NO_WAKEUP);
}

/* An external policy reads reports from the first map, and writes decisions into the second. */
#define SKYHOP_REPORTS                                                                                    \
	struct {                                                                                          \
		int(*type)[BPF_MAP_TYPE_RINGBUF];                                                         \
		int(*max_entries)[1024 * 1024];                                                           \
	} skyhop_reports SEC(".maps");                                                                    \
	struct {                                                                                          \
		int(*type)[BPF_MAP_TYPE_LRU_HASH];                                                        \
		int(*max_entries)[65536];                                                                 \
		u64 *key;                                                                                 \
		struct skyhop_decision *value;                                                            \
	} skyhop_decisions SEC(".maps");                                                                  \
	static inline SKYHOP_UNUSED void skyhop_report(struct sock *sk, struct skyhop_report *report)     \
	{                                                                                                 \
		report->netns_cookie = sk->__sk_common.skc_net.net->net_cookie;                           \
		report->local_port = sk->__sk_common.skc_num;                                             \
		report->remote_port = sk->__sk_common.skc_dport;                                          \
		report->remote_ipv4 = sk->__sk_common.skc_daddr;                                          \
		bpf_ringbuf_output(&skyhop_reports, report, sizeof(*report), 0);                          \
	}                                                                                                 \
	static inline SKYHOP_UNUSED bool skyhop_decision(struct sock *sk, u64 id,                         \
							 struct skyhop_decision *decision)                \
	{                                                                                                 \
		struct skyhop_decision *found = bpf_map_lookup_elem(&skyhop_decisions, &id);              \
                                                                                                          \
		(void)sk;                                                                                 \
		if (!found)                                                                               \
			return false;                                                                     \
		*decision = *found;                                                                       \
		return true;                                                                              \
	}                                                                                                 \
	struct skyhop_reports_are_in_a_ring

/* The kernel passes a hook its arguments as an array of u64. */
#define SKYHOP_CTX_1 ctx[0]
#define SKYHOP_CTX_2 ctx[0], ctx[1]
#define SKYHOP_CTX_3 ctx[0], ctx[1], ctx[2]
#ifdef SKYHOP_BEFORE_6_10
/* cong_control is the only hook with four arguments; kernels before 6.10 pass its first and its last. */
#define SKYHOP_CTX_4 ctx[0], 0, 0, ctx[1]
#else
#define SKYHOP_CTX_4 ctx[0], ctx[1], ctx[2], ctx[3]
#endif
#define SKYHOP_PICK(a1, a2, a3, a4, picked, ...) picked
#define SKYHOP_CTX(...) \
	SKYHOP_PICK(__VA_ARGS__, SKYHOP_CTX_4, SKYHOP_CTX_3, SKYHOP_CTX_2, SKYHOP_CTX_1, 0)
#define SKYHOP_HOOK(result, function, ...)                                                                \
	enum { function##_is_a_hook = 1 };                                                                \
	static inline __attribute__((always_inline)) result function##_hook(__VA_ARGS__);                 \
	SEC("struct_ops") result function(u64 *ctx)                                                       \
	{                                                                                                 \
		_Pragma("clang diagnostic push")                                                          \
		_Pragma("clang diagnostic ignored \"-Wint-conversion\"")                                  \
		return function##_hook(SKYHOP_CTX(__VA_ARGS__));                                          \
		_Pragma("clang diagnostic pop")                                                           \
	}                                                                                                 \
	static inline __attribute__((always_inline)) result function##_hook(__VA_ARGS__)
#define SKYHOP_FN(function) ((void *)((char *)(function) + 0 * function##_is_a_hook))
/* The loader chooses the name in the kernel: the kernel's own module may have the plain one. */
#define SKYHOP_MODULE(id, about, ...)                                                                     \
	SKYHOP_CHECK_NAME(id);                                                                            \
	const char skyhop_license[] SEC("license") = "Dual MIT/GPL";                                      \
	struct tcp_congestion_ops id SEC(".struct_ops") = { .name = #id, __VA_ARGS__ }

#else
/* ---- In the simulator ---- */

/* State that crates/cc keeps for one instance; icsk_ca_priv[0] points to it during every call. */
struct skyhop_host {
	void *state;
	const u64 *params; /* in the order of the module's table */
	u64 random;        /* seed, then state, of skyhop_random() */
	struct skyhop_handover handover;
	void (*tell)(void *phases, const struct skyhop_phase *phase);
	void *phases; /* first argument of tell */
	void (*report)(void *decider, const struct skyhop_report *report);
	void *decider; /* first argument of report; NULL: no external policy */
	struct skyhop_decision decision;
	u32 hz;
};

/* Parameter of a module, a row of its table. */
struct skyhop_param {
	const char *name;
	const char *unit;
	const char *about;
	u64 scale;
	s64 initial;
	s64 least;
	s64 most;
};

/* Congestion control as a module: hooks, parameters and size of the state. */
struct skyhop_module {
	const char *about;
	const struct tcp_congestion_ops *ops;
	const struct skyhop_param *params;
	u64 params_len;
	u64 state_bytes;
};

#define SKYHOP_UNUSED __attribute__((unused))

static inline struct skyhop_host *skyhop_host(const struct sock *sk)
{
	return (struct skyhop_host *)(uintptr_t)((const struct inet_connection_sock *)sk)->icsk_ca_priv[0];
}

static inline u32 skyhop_hz(const struct sock *sk)
{
	return skyhop_host(sk)->hz;
}

static inline u32 skyhop_jiffies(const struct sock *sk)
{
	return (u32)(((const struct tcp_sock *)sk)->tcp_mstamp * skyhop_hz(sk) / USEC_PER_SEC);
}

static inline u64 skyhop_now_ns(const struct sock *sk)
{
	return ((const struct tcp_sock *)sk)->tcp_mstamp * NSEC_PER_USEC;
}

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static inline u32 skyhop_random(struct sock *sk, u32 n)
{
	u64 z = (skyhop_host(sk)->random += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return (u32)((z ^ (z >> 31)) >> 32) % n;
}

static inline bool skyhop_handover(struct sock *sk, struct skyhop_handover *handover)
{
	*handover = skyhop_host(sk)->handover;
	return handover->valid;
}

static inline void skyhop_tell(struct sock *sk, enum skyhop_phase_kind kind, u64 begin_ns, u64 end_ns)
{
	struct skyhop_phase phase = { begin_ns, end_ns, kind };

	skyhop_host(sk)->tell(skyhop_host(sk)->phases, &phase);
}

#define SKYHOP_REPORTS                                                                                    \
	static inline SKYHOP_UNUSED void skyhop_report(struct sock *sk, struct skyhop_report *report)     \
	{                                                                                                 \
		if (skyhop_host(sk)->decider)                                                             \
			skyhop_host(sk)->report(skyhop_host(sk)->decider, report);                        \
	}                                                                                                 \
	static inline SKYHOP_UNUSED bool skyhop_decision(struct sock *sk, u64 id,                         \
							 struct skyhop_decision *decision)                \
	{                                                                                                 \
		(void)id;                                                                                 \
		*decision = skyhop_host(sk)->decision;                                                    \
		return decision->report_ns;                                                               \
	}                                                                                                 \
	struct skyhop_reports_are_called_for

#define SKYHOP_PARAM_INDEX(name, scale, initial, least, most, unit, about) SKYHOP_PARAM_INDEX_##name,
#define SKYHOP_PARAM_ROW(name, scale, initial, least, most, unit, about) \
	{ #name, unit, about, scale, initial, least, most },
#define SKYHOP_PARAMS(LIST)                                                                               \
	enum { LIST(SKYHOP_PARAM_INDEX) SKYHOP_PARAMS_LEN };                                              \
	static const struct skyhop_param skyhop_params[] = { LIST(SKYHOP_PARAM_ROW) }
#define SKYHOP_NO_PARAMS                                                                                  \
	enum { SKYHOP_PARAMS_LEN };                                                                       \
	static const struct skyhop_param *const skyhop_params = NULL
#define skyhop_param(sk, name) (skyhop_host(sk)->params[SKYHOP_PARAM_INDEX_##name])

#define SKYHOP_STATE(state_type)                                                                          \
	enum { SKYHOP_STATE_BYTES = sizeof(state_type) };                                                 \
	static inline SKYHOP_UNUSED state_type *skyhop_state(struct sock *sk)                             \
	{                                                                                                 \
		return skyhop_host(sk)->state;                                                            \
	}                                                                                                 \
	static inline SKYHOP_UNUSED state_type *skyhop_state_create(struct sock *sk)                      \
	{                                                                                                 \
		return skyhop_host(sk)->state;                                                            \
	}                                                                                                 \
	struct skyhop_state_is_hosted
#define SKYHOP_NO_STATE enum { SKYHOP_STATE_BYTES = 0 }

#define skyhop_bits(p, field) ((p)->field)

#define SKYHOP_HOOK(result, function, ...) \
	enum { function##_is_a_hook = 1 }; \
	static result function(__VA_ARGS__)
/* A function that is not a SKYHOP_HOOK does not compile here, because the kernel would not accept it. */
#define SKYHOP_FN(function) (function##_is_a_hook ? (function) : (function))
#ifdef SKYHOP_SHARED
/* The only module of a shared object, looked up by a fixed name. */
#define SKYHOP_MODULE_OF(id) skyhop_module
#else
#define SKYHOP_MODULE_OF(id) skyhop_module_##id
#endif
#define SKYHOP_MODULE(id, about_it, ...)                                                                  \
	SKYHOP_CHECK_NAME(id);                                                                            \
	static const struct tcp_congestion_ops skyhop_ops = { .name = #id, __VA_ARGS__ };                 \
	extern const struct skyhop_module SKYHOP_MODULE_OF(id);                                           \
	const struct skyhop_module SKYHOP_MODULE_OF(id) = { .about = about_it,                            \
							    .ops = &skyhop_ops,                           \
							    .params = skyhop_params,                      \
							    .params_len = SKYHOP_PARAMS_LEN,              \
							    .state_bytes = SKYHOP_STATE_BYTES }
#endif

#define SKYHOP_CHECK_NAME(id) \
	_Static_assert(sizeof(#id) <= 16, "the name of a congestion control has at most 15 letters")

/* For headers whose parameter rows LIST(P) modules include in their tables: struct config {
 * LIST(SKYHOP_CONFIG_MEMBER) } holds their values, (struct config){ LIST(SKYHOP_CONFIG_VALUE) } fills it from the
 * `sk` in scope. */
#define SKYHOP_CONFIG_MEMBER(name, scale, initial, least, most, unit, about) u64 name;
#define SKYHOP_CONFIG_VALUE(name, scale, initial, least, most, unit, about) .name = skyhop_param(sk, name),

/* ---- Helpers of the kernel for its modules, under the kernel's names ---- */

#define min_of(a, b) ((a) < (b) ? (a) : (b))
#define max_of(a, b) ((a) > (b) ? (a) : (b))

static inline u32 min_u32(u32 a, u32 b)
{
	return min_of(a, b);
}

static inline u32 max_u32(u32 a, u32 b)
{
	return max_of(a, b);
}

static inline u64 min_u64(u64 a, u64 b)
{
	return min_of(a, b);
}

static inline u64 max_u64(u64 a, u64 b)
{
	return max_of(a, b);
}

static inline u32 clamp_u32(u32 value, u32 least, u32 most)
{
	return min_u32(max_u32(value, least), most);
}

#ifndef __KERNEL__
/* Sequence numbers and tick counts wrap: RFC 9293 3.4. */
static inline bool before(u32 a, u32 b)
{
	return (s32)(a - b) < 0;
}

static inline bool after(u32 a, u32 b)
{
	return before(b, a);
}

static inline struct tcp_sock *tcp_sk(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static inline struct inet_connection_sock *inet_csk(struct sock *sk)
{
	return (struct inet_connection_sock *)sk;
}

static inline bool tcp_in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

/* Packets sent and believed neither delivered nor lost: pipe of RFC 6675. */
static inline u32 tcp_packets_in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - (tp->sacked_out + tp->lost_out) + tp->retrans_out;
}

static inline u32 tcp_min_rtt(const struct tcp_sock *tp)
{
	return tp->rtt_min.s[0].v;
}

/* Whether the window limits the flow: an unused window does not grow (RFC 7661 4.3). Slow start may grow to twice
 * what was used. */
static inline bool tcp_is_cwnd_limited(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (skyhop_bits(tp, is_cwnd_limited))
		return true;
	return tcp_in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/* Grow by the packets acknowledged, up to ssthresh (RFC 5681 3.1 with RFC 3465); return those left over. */
static inline u32 tcp_slow_start(struct tcp_sock *tp, u32 acked)
{
	u32 grown = min_u32(tp->snd_cwnd + acked, tp->snd_ssthresh);
	u32 left = acked - (grown - tp->snd_cwnd);

	tp->snd_cwnd = min_u32(grown, tp->snd_cwnd_clamp);
	return left;
}

/* Grow by one packet for every `w` acknowledged, and carry over the rest (RFC 5681 3.1, RFC 3465 2.1). */
static inline void tcp_cong_avoid_ai(struct tcp_sock *tp, u32 w, u32 acked)
{
	u32 counted = tp->snd_cwnd_cnt;
	u32 cwnd = tp->snd_cwnd;

	/* Credit from a time when `w` was larger counts as one packet, not more. */
	if (counted >= w) {
		counted = 0;
		cwnd++;
	}
	counted += acked;
	if (counted >= w) {
		cwnd += counted / w;
		counted %= w;
	}
	tp->snd_cwnd_cnt = counted;
	tp->snd_cwnd = min_u32(cwnd, tp->snd_cwnd_clamp);
}

/* Half the window, at least two packets (RFC 5681 3.1, equation 4). */
static inline u32 tcp_reno_ssthresh(struct sock *sk)
{
	return max_u32(tcp_sk(sk)->snd_cwnd / 2, 2);
}

static inline void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);

	(void)ack;
	if (!tcp_is_cwnd_limited(sk))
		return;
	if (tcp_in_slow_start(tp)) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	tcp_cong_avoid_ai(tp, tp->snd_cwnd, acked);
}

/* Window after the undo of a spurious reduction (RFC 3522, RFC 4015). */
static inline u32 tcp_reno_undo_cwnd(struct sock *sk)
{
	return max_u32(tcp_sk(sk)->snd_cwnd, tcp_sk(sk)->prior_cwnd);
}
#endif

static inline u8 tcp_ca_state(struct sock *sk)
{
	return (u8)skyhop_bits(inet_csk(sk), icsk_ca_state);
}

#endif
