/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* BBR version 1 as in Linux. */
#include "bbr_core.h"

#define LINUX_PARAMS(P) BBR_PARAMS(P, 10000)
SKYHOP_PARAMS(LINUX_PARAMS);
SKYHOP_STATE(struct bbr);

SKYHOP_HOOK(void, bbr_init, struct sock *sk)
{
	struct bbr *bbr = skyhop_state_create(sk);

	if (bbr)
		bbr_start(sk, bbr, &BBR_CONFIG);
}

SKYHOP_HOOK(void, bbr_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct bbr *bbr = skyhop_state(sk);

	(void)ack;
	(void)flag;
	if (bbr)
		bbr_on_ack(sk, bbr, rs);
}

SKYHOP_HOOK(void, bbr_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct bbr *bbr = skyhop_state(sk);

	if (bbr)
		bbr_on_event(sk, bbr, event);
}

SKYHOP_HOOK(void, bbr_set_state, struct sock *sk, u8 new_state)
{
	struct bbr *bbr = skyhop_state(sk);

	if (bbr)
		bbr_on_state(sk, bbr, new_state);
}

SKYHOP_HOOK(u32, bbr_ssthresh, struct sock *sk)
{
	struct bbr *bbr = skyhop_state(sk);

	return bbr ? bbr_on_loss(sk, bbr) : tcp_sk(sk)->snd_ssthresh;
}

SKYHOP_HOOK(u32, bbr_undo_cwnd, struct sock *sk)
{
	struct bbr *bbr = skyhop_state(sk);

	return bbr ? bbr_on_undo(sk, bbr) : tcp_sk(sk)->snd_cwnd;
}

SKYHOP_HOOK(u32, bbr_min_tso_segs, struct sock *sk)
{
	return bbr_least_burst(sk);
}

SKYHOP_HOOK(u32, bbr_sndbuf_expand, struct sock *sk)
{
	(void)sk;
	return BBR_SNDBUF_WINDOWS;
}

SKYHOP_MODULE(bbr, "BBR version 1 as Linux has it",
	      .flags = TCP_CONG_NON_RESTRICTED,
	      .init = SKYHOP_FN(bbr_init),
	      .ssthresh = SKYHOP_FN(bbr_ssthresh),
	      .cong_control = SKYHOP_FN(bbr_cong_control),
	      .set_state = SKYHOP_FN(bbr_set_state),
	      .cwnd_event = SKYHOP_FN(bbr_cwnd_event),
	      .undo_cwnd = SKYHOP_FN(bbr_undo_cwnd),
	      .min_tso_segs = SKYHOP_FN(bbr_min_tso_segs),
	      .sndbuf_expand = SKYHOP_FN(bbr_sndbuf_expand));
