/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Reno with a hook that no caller of skyhop uses. */
#include "skyhop_cc.h"

SKYHOP_NO_PARAMS;
SKYHOP_NO_STATE;

SKYHOP_HOOK(u64, info_get_info, struct sock *sk, u32 ext, int *attr, void *info)
{
	(void)sk;
	(void)ext;
	(void)attr;
	(void)info;
	return 0;
}

SKYHOP_HOOK(u32, info_ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

SKYHOP_HOOK(void, info_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

SKYHOP_HOOK(u32, info_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SKYHOP_MODULE(info, "Reno that tells of itself",
	      .ssthresh = SKYHOP_FN(info_ssthresh),
	      .cong_avoid = SKYHOP_FN(info_cong_avoid),
	      .undo_cwnd = SKYHOP_FN(info_undo_cwnd),
	      .get_info = SKYHOP_FN(info_get_info));
