/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * SaTCP (Cao and Zhang, "SaTCP: Link-layer informed TCP adaptation for highly dynamic LEO satellite networks",
 * INFOCOM 2023, cited as "SaTCP"): CUBIC that does not treat losses of a handover as congestion. From the
 * announcement on, for `hold`, it inhibits the reduction of the window, in one of two modes:
 * - published: Algorithm 1: an epoch that begins while reduction is inhibited takes K/9, so that the window returns
 *   to W_max at once, and a timeout does not reset CUBIC. The reduction itself takes place.
 * - freeze: the text of V-A: cwnd and ssthresh are not reduced at all.
 */
#include "cubic_core.h"

enum satcp_mode { PUBLISHED, FREEZE };

#define SATCP_PARAMS(P)                                                                                   \
	CUBIC_PARAMS(P)                                                                                   \
	P(mode, 1, PUBLISHED, PUBLISHED, FREEZE, "published|freeze", "how window reduction is inhibited") \
	P(hold, 1, 1300, 0, 60000, "ms", "duration of the inhibition, from the announcement on")         \
	P(lead, 1, 500, 0, 60000, "ms", "default of lead in [signal]: from announcement to handover")
SKYHOP_PARAMS(SATCP_PARAMS);

#define K_DIVISOR 9 /* divisor of K during a hold (SaTCP, V-D) */

struct satcp {
	struct cubic cubic;
	u64 heard_at_ns;   /* time of the handover in the last announcement */
	u64 hold_ends_ns;  /* 0: no hold so far */
	u32 kept_ssthresh; /* ssthresh to restore at the end of a recovery within a hold; 0: none */
};
SKYHOP_STATE(struct satcp);

static bool is_holding(struct sock *sk, const struct satcp *satcp)
{
	return skyhop_now_ns(sk) < satcp->hold_ends_ns;
}

/* Begin a hold with each new announcement; it ends by itself. If the announced handover has already passed, the hold
 * counts from its time, so an old announcement holds nothing. */
static void listen(struct sock *sk, struct satcp *satcp)
{
	u64 now = skyhop_now_ns(sk);
	u64 hold_ns = skyhop_param(sk, hold) * NSEC_PER_MSEC;
	struct skyhop_handover handover;
	u64 begin;

	if (!skyhop_handover(sk, &handover) || handover.at_ns == satcp->heard_at_ns)
		return;
	satcp->heard_at_ns = handover.at_ns;
	begin = min_u64(now, handover.at_ns);
	if (now - begin >= hold_ns)
		return;
	satcp->hold_ends_ns = max_u64(satcp->hold_ends_ns, begin + hold_ns);
	skyhop_tell(sk, SKYHOP_HOLD, now, satcp->hold_ends_ns);
}

SKYHOP_HOOK(void, satcp_init, struct sock *sk)
{
	struct satcp *satcp = skyhop_state_create(sk);

	if (!satcp)
		return;
	satcp->heard_at_ns = 0;
	satcp->hold_ends_ns = 0;
	satcp->kept_ssthresh = 0;
	cubic_start(sk, &satcp->cubic, &CUBIC_CONFIG);
}

SKYHOP_HOOK(u32, satcp_ssthresh, struct sock *sk)
{
	struct satcp *satcp = skyhop_state(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	if (!satcp)
		return tcp_reno_ssthresh(sk);
	listen(sk, satcp);
	if (skyhop_param(sk, mode) != FREEZE || !is_holding(sk, satcp)) {
		satcp->kept_ssthresh = 0;
		return cubic_curve_reduced(sk, &satcp->cubic.curve);
	}
	/* At the end of recovery the kernel sets the window to the returned value: back to its current size. */
	satcp->kept_ssthresh = max_u32(satcp->kept_ssthresh, tp->snd_ssthresh);
	return max_u32(tp->snd_cwnd, 2);
}

static void give_ssthresh_back(struct sock *sk, struct satcp *satcp)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tp->snd_ssthresh = max_u32(tp->snd_ssthresh, satcp->kept_ssthresh);
	satcp->kept_ssthresh = 0;
}

/* Before this call a timeout has set ssthresh, and reduced cwnd to almost nothing. */
SKYHOP_HOOK(void, satcp_set_state, struct sock *sk, u8 new_state)
{
	struct satcp *satcp = skyhop_state(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	if (!satcp || new_state != TCP_CA_Loss)
		return;
	listen(sk, satcp);
	if (!is_holding(sk, satcp)) {
		cubic_forget(sk, &satcp->cubic);
		satcp->kept_ssthresh = 0;
		return;
	}
	if (skyhop_param(sk, mode) != FREEZE)
		return;
	if (tp->snd_ssthresh < TCP_INFINITE_SSTHRESH)
		tp->snd_cwnd = min_u32(max_u32(tp->snd_cwnd, tp->snd_ssthresh), tp->snd_cwnd_clamp);
	give_ssthresh_back(sk, satcp);
}

SKYHOP_HOOK(void, satcp_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct satcp *satcp = skyhop_state(sk);

	if (!satcp)
		return;
	cubic_curve_skip_idle(sk, &satcp->cubic.curve, event);
	if (event == CA_EVENT_COMPLETE_CWR)
		give_ssthresh_back(sk, satcp);
}

SKYHOP_HOOK(void, satcp_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct satcp *satcp = skyhop_state(sk);

	(void)ack;
	if (satcp)
		cubic_grow(sk, &satcp->cubic, acked,
			   skyhop_param(sk, mode) == PUBLISHED && is_holding(sk, satcp) ? K_DIVISOR : 1);
}

SKYHOP_HOOK(void, satcp_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct satcp *satcp = skyhop_state(sk);

	if (!satcp)
		return;
	listen(sk, satcp);
	cubic_measure(sk, &satcp->cubic, sample);
}

/* Undo of a spurious reduction (RFC 9438 4.9) */
SKYHOP_HOOK(u32, satcp_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SKYHOP_MODULE(satcp, "SaTCP: CUBIC that holds its window while a handover is announced",
	      .flags = TCP_CONG_NON_RESTRICTED,
	      .init = SKYHOP_FN(satcp_init),
	      .ssthresh = SKYHOP_FN(satcp_ssthresh),
	      .cong_avoid = SKYHOP_FN(satcp_cong_avoid),
	      .set_state = SKYHOP_FN(satcp_set_state),
	      .cwnd_event = SKYHOP_FN(satcp_cwnd_event),
	      .pkts_acked = SKYHOP_FN(satcp_pkts_acked),
	      .undo_cwnd = SKYHOP_FN(satcp_undo_cwnd));
