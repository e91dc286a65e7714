//! Reno compared with RFC 5681.

use crate::path::Sender;
use skyhop_cc::{CongestionControl, Instance, Module, TcpSock};

fn reno() -> Instance {
    Instance::new(Module::find("reno").unwrap(), &[]).unwrap()
}

/// The window doubles per RTT in slow start (RFC 5681 3.1, equation 2), and grows by one packet per RTT
/// afterwards (equation 3).
#[test]
fn slow_start_doubles_and_avoidance_adds_one() {
    let mut sender = Sender::new(reno(), 1, 100_000);
    sender.tp.snd_ssthresh = 160;
    let trace = sender.run_until(1_000_000 + 14 * 101_000);
    let window_of_round = |round: u32| {
        trace.iter().rfind(|moment| moment.rounds == round).expect("the round took place").cwnd
    };
    assert_eq!([1, 2, 3, 4].map(window_of_round), [20, 40, 80, 160]);
    for round in 5..12 {
        assert_eq!(window_of_round(round) - window_of_round(round - 1), 1);
    }
}

/// A loss halves the window, to at least two packets (RFC 5681 3.1, equation 4); undo restores it (RFC 4015).
#[test]
fn halves_and_undoes() {
    let mut cc = reno();
    let mut tp = TcpSock { snd_cwnd: 101, ..TcpSock::default() };
    cc.init(&mut tp);
    assert_eq!(cc.ssthresh(&mut tp), 50);
    tp.snd_cwnd = 3;
    assert_eq!(cc.ssthresh(&mut tp), 2);
    tp.prior_cwnd = 101;
    assert_eq!(cc.undo_cwnd(&mut tp), 101);
}

/// An unused window does not grow (RFC 7661).
#[test]
fn an_unused_window_stays() {
    let mut cc = reno();
    let mut tp = TcpSock { snd_cwnd: 100, snd_ssthresh: 50, ..TcpSock::default() };
    cc.init(&mut tp);
    cc.cong_avoid(&mut tp, 0, 1000);
    assert_eq!(tp.snd_cwnd, 100);
    tp.set_cwnd_limited(true);
    cc.cong_avoid(&mut tp, 0, 1000);
    assert_eq!(tp.snd_cwnd, 110);
    tp.snd_cwnd_clamp = 105;
    cc.cong_avoid(&mut tp, 0, 1000);
    assert_eq!(tp.snd_cwnd, 105);
}
