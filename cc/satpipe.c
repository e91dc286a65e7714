/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * SatPipe ("SatPipe: Deterministic TCP adaptation for highly dynamic LEO satellite networks", INFOCOM 2025, cited
 * as "SatPipe"): BBR that closes its window while a handover is due, so that nothing piles up before the link that
 * is down, and then measures the new path at once. The published patch's flaws are not repeated: the state belongs
 * to the connection, STARTUP is left alone, and min_rtt may rise.
 *
 * The window of a handover, from `guard_before` its announced moment to `guard_after` it, is spent in BBR's own
 * PROBE_RTT (SatPipe, IV-F, merges the two), whose clock starts at the window's end.
 */
#include "bbr_core.h"

#define SATPIPE_PARAMS(P)                                                                                 \
	BBR_PARAMS(P)                                                                                     \
	P(guard_before, 1, 15, 0, 10000, "ms", "how long before the announced moment to drain")          \
	P(guard_after, 1, 100, 0, 10000, "ms", "how long after it")
SKYHOP_PARAMS(SATPIPE_PARAMS);

enum satpipe_step {
	WAITING,  /* BBR as it is, perhaps with a window ahead */
	DRAINING, /* within the window: queue maintenance */
	PROBING,  /* after it, in PROBE_RTT */
};

struct satpipe {
	struct bbr bbr;
	u64 heard_at_ns; /* the moment that the last announcement taken up is about */
	u64 begin_ns;    /* the window that is ahead, or now */
	u64 end_ns;      /* 0: there is none */
	u64 step_began_ns;
	u64 drained_us;   /* when the drain ended */
	u32 fresh_rtt_us; /* the least RTT of what was sent since; BBR_NO_RTT: none yet */
	u8 step;          /* enum satpipe_step */
};
SKYHOP_STATE(struct satpipe);

/* ---- Announcements ---- */

/* While a window is ahead, one that comes later has to wait: it is still announced when the first is over. One that
 * has passed for longer than an RTT sample counts is none; after a more recent one the path wants measuring. */
static void listen(struct sock *sk, struct satpipe *satpipe, u64 now)
{
	u64 before_ns = skyhop_param(sk, guard_before) * NSEC_PER_MSEC;
	u64 after_ns = skyhop_param(sk, guard_after) * NSEC_PER_MSEC;
	u64 recent_ns = skyhop_param(sk, min_rtt_window) * NSEC_PER_MSEC;
	struct skyhop_handover handover;
	u64 begin, end;

	if (satpipe->step != WAITING || !skyhop_handover(sk, &handover) || handover.at_ns == satpipe->heard_at_ns)
		return;
	begin = handover.at_ns - min_u64(handover.at_ns, before_ns);
	end = handover.at_ns + after_ns;
	if (satpipe->end_ns && begin >= satpipe->begin_ns)
		return;
	satpipe->heard_at_ns = handover.at_ns;
	if (end < handover.at_ns || end + recent_ns < now)
		return;
	satpipe->begin_ns = begin;
	satpipe->end_ns = end;
}

/* ---- The two states that BBR has not ---- */

static void start_drain(struct sock *sk, struct satpipe *satpipe, u64 now)
{
	struct bbr *bbr = &satpipe->bbr;

	bbr_save_cwnd(sk, bbr);
	bbr->mode = BBR_PROBE_RTT;
	bbr->probe_rtt_ends_at = 0;
	satpipe->step = DRAINING;
	satpipe->step_began_ns = now;
}

/* Also where no ACK came during the window, so that its drain is noticed only now. */
static void start_probe(struct sock *sk, struct satpipe *satpipe, u64 now)
{
	if (now > satpipe->step_began_ns)
		skyhop_tell(sk, SKYHOP_DRAIN, satpipe->step_began_ns, now);
	satpipe->step = PROBING;
	satpipe->step_began_ns = now;
	satpipe->end_ns = 0;
	satpipe->drained_us = tcp_sk(sk)->tcp_mstamp;
	satpipe->fresh_rtt_us = BBR_NO_RTT;
}

static void follow_window(struct sock *sk, struct satpipe *satpipe, u64 now)
{
	if (satpipe->step == WAITING && satpipe->end_ns && now >= satpipe->begin_ns) {
		if (satpipe->bbr.pipe_is_full)
			start_drain(sk, satpipe, now);
		else if (now >= satpipe->end_ns)
			satpipe->end_ns = 0;
	}
	if (satpipe->step == DRAINING && now >= satpipe->end_ns)
		start_probe(sk, satpipe, now);
}

/* PROBE_RTT is over: the path's RTT is what was seen in it, be it more or less than before. */
static void finish_probe(struct sock *sk, struct satpipe *satpipe, u64 now)
{
	if (satpipe->step != PROBING || satpipe->bbr.mode == BBR_PROBE_RTT)
		return;
	if (satpipe->fresh_rtt_us != BBR_NO_RTT)
		satpipe->bbr.min_rtt_us = satpipe->fresh_rtt_us;
	skyhop_tell(sk, SKYHOP_PROBE_RTT, satpipe->step_began_ns, now);
	satpipe->step = WAITING;
}

/* Only what left after the drain has seen nothing but the new path. */
static void take_fresh_rtt(struct sock *sk, struct satpipe *satpipe, const struct rate_sample *rs)
{
	u64 sent_us;

	if (rs->rtt_us < 0 || rs->is_ack_delayed)
		return;
	sent_us = bbr_us_since((u64)rs->rtt_us, tcp_sk(sk)->tcp_mstamp);
	if (sent_us >= satpipe->drained_us)
		satpipe->fresh_rtt_us = min_u32(satpipe->fresh_rtt_us, (u32)rs->rtt_us);
}

/* BBR forgets a bandwidth after ten rounds. Rounds of a window that is closed do not count, or each handover would
 * leave the estimate to the first samples after it: the filter's times move on with the rounds. */
static void keep_bandwidth(struct bbr *bbr, u32 rounds_before)
{
	struct minmax_filter *max = &bbr->max_bw;

	if (bbr->rounds == rounds_before)
		return;
	max->best.t += before(max->best.t, bbr->rounds);
	max->second.t += before(max->second.t, bbr->rounds);
	max->third.t += before(max->third.t, bbr->rounds);
}

static void stay_closed(struct sock *sk, struct satpipe *satpipe, const struct rate_sample *rs, u32 rounds_before)
{
	keep_bandwidth(&satpipe->bbr, rounds_before);
	if (satpipe->step == DRAINING)
		satpipe->bbr.probe_rtt_ends_at = 0;
	else
		take_fresh_rtt(sk, satpipe, rs);
}

/* ---- The hooks ---- */

SKYHOP_HOOK(void, satpipe_init, struct sock *sk)
{
	struct satpipe *satpipe = skyhop_state_create(sk);

	if (!satpipe)
		return;
	satpipe->heard_at_ns = 0;
	satpipe->end_ns = 0;
	satpipe->step = WAITING;
	bbr_start(sk, &satpipe->bbr, &BBR_CONFIG);
}

SKYHOP_HOOK(void, satpipe_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct satpipe *satpipe = skyhop_state(sk);
	u64 now = skyhop_now_ns(sk);
	u32 rounds_before;

	(void)ack;
	(void)flag;
	if (!satpipe)
		return;
	rounds_before = satpipe->bbr.rounds;
	listen(sk, satpipe, now);
	follow_window(sk, satpipe, now);
	bbr_on_ack(sk, &satpipe->bbr, rs);
	if (satpipe->step != WAITING)
		stay_closed(sk, satpipe, rs, rounds_before);
	finish_probe(sk, satpipe, now);
}

/* What is sent after idle may end PROBE_RTT. */
SKYHOP_HOOK(void, satpipe_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct satpipe *satpipe = skyhop_state(sk);

	if (!satpipe)
		return;
	bbr_on_event(sk, &satpipe->bbr, event);
	finish_probe(sk, satpipe, skyhop_now_ns(sk));
}

SKYHOP_HOOK(void, satpipe_set_state, struct sock *sk, u8 new_state)
{
	struct satpipe *satpipe = skyhop_state(sk);

	if (satpipe)
		bbr_on_state(sk, &satpipe->bbr, new_state);
}

SKYHOP_HOOK(u32, satpipe_ssthresh, struct sock *sk)
{
	struct satpipe *satpipe = skyhop_state(sk);

	return satpipe ? bbr_on_loss(sk, &satpipe->bbr) : tcp_sk(sk)->snd_ssthresh;
}

SKYHOP_HOOK(u32, satpipe_undo_cwnd, struct sock *sk)
{
	struct satpipe *satpipe = skyhop_state(sk);

	return satpipe ? bbr_on_undo(sk, &satpipe->bbr) : tcp_sk(sk)->snd_cwnd;
}

SKYHOP_HOOK(u32, satpipe_min_tso_segs, struct sock *sk)
{
	return bbr_least_burst(sk);
}

SKYHOP_HOOK(u32, satpipe_sndbuf_expand, struct sock *sk)
{
	(void)sk;
	return BBR_SNDBUF_WINDOWS;
}

SKYHOP_MODULE(satpipe, "SatPipe: BBR that drains while a handover is due, and measures after it",
	      .flags = TCP_CONG_NON_RESTRICTED,
	      .init = SKYHOP_FN(satpipe_init),
	      .ssthresh = SKYHOP_FN(satpipe_ssthresh),
	      .cong_control = SKYHOP_FN(satpipe_cong_control),
	      .set_state = SKYHOP_FN(satpipe_set_state),
	      .cwnd_event = SKYHOP_FN(satpipe_cwnd_event),
	      .undo_cwnd = SKYHOP_FN(satpipe_undo_cwnd),
	      .min_tso_segs = SKYHOP_FN(satpipe_min_tso_segs),
	      .sndbuf_expand = SKYHOP_FN(satpipe_sndbuf_expand));
