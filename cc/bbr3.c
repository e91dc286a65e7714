/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * BBR version 3 (draft-ietf-ccwg-bbr-06) with the constants of Linux's patch. A stock kernel reports neither the
 * state of each packet that BBR needs (tx_in_flight and lost as of its departure) nor which packets are lost:
 * flight.h estimates both from snapshots at ACKs and says how exactly; bbr23_core.h lists the other differences.
 */
#include "bbr23_core.h"

#define BBR3_PARAMS(P) BBR23_PARAMS(P, 710, 512, 232, 576, 6, 1)
SKYHOP_PARAMS(BBR3_PARAMS);

struct bbr3 {
	struct bbr23 bbr;
	struct flight flight;
};
SKYHOP_STATE(struct bbr3);

SKYHOP_HOOK(void, bbr3_init, struct sock *sk)
{
	struct bbr3 *bbr3 = skyhop_state_create(sk);

	if (bbr3)
		bbr23_start(sk, &bbr3->bbr, &bbr3->flight, &BBR23_CONFIG, false);
}

SKYHOP_HOOK(void, bbr3_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct bbr3 *bbr3 = skyhop_state(sk);

	(void)ack;
	(void)flag;
	if (bbr3)
		bbr23_on_ack(sk, &bbr3->bbr, &bbr3->flight, rs);
}

SKYHOP_HOOK(void, bbr3_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct bbr3 *bbr3 = skyhop_state(sk);

	if (bbr3)
		bbr23_on_event(sk, &bbr3->bbr, event);
}

SKYHOP_HOOK(void, bbr3_set_state, struct sock *sk, u8 new_state)
{
	struct bbr3 *bbr3 = skyhop_state(sk);

	if (bbr3)
		bbr23_on_state(sk, &bbr3->bbr, &bbr3->flight, new_state);
}

SKYHOP_HOOK(u32, bbr3_ssthresh, struct sock *sk)
{
	struct bbr3 *bbr3 = skyhop_state(sk);

	return bbr3 ? bbr23_on_recovery(sk, &bbr3->bbr) : tcp_sk(sk)->snd_ssthresh;
}

SKYHOP_HOOK(u32, bbr3_undo_cwnd, struct sock *sk)
{
	struct bbr3 *bbr3 = skyhop_state(sk);

	return bbr3 ? bbr23_on_undo(&bbr3->bbr) : tcp_sk(sk)->snd_cwnd;
}

SKYHOP_HOOK(u32, bbr3_sndbuf_expand, struct sock *sk)
{
	(void)sk;
	return BBR23_SNDBUF_WINDOWS;
}

SKYHOP_MODULE(bbr3, "BBR version 3: bounds in-flight data by loss; probes leave headroom",
	      .flags = TCP_CONG_NON_RESTRICTED,
	      .init = SKYHOP_FN(bbr3_init),
	      .ssthresh = SKYHOP_FN(bbr3_ssthresh),
	      .cong_control = SKYHOP_FN(bbr3_cong_control),
	      .set_state = SKYHOP_FN(bbr3_set_state),
	      .cwnd_event = SKYHOP_FN(bbr3_cwnd_event),
	      .undo_cwnd = SKYHOP_FN(bbr3_undo_cwnd),
	      .sndbuf_expand = SKYHOP_FN(bbr3_sndbuf_expand));
