//! Calls of the congestion control's hooks and their arguments.

use std::sync::{Arc, Mutex};

use skyhop_cc::bindings::*;
use skyhop_cc::{Module, Registry, Setup};
use skyhop_tcp::{AckSample, CALLER, CongestionControl, RateSample, Receiver, TcpSock};
use skyhop_units::{Bytes, Duration};

use crate::path::{Fate, Path, ms};
use crate::receiving::of_window;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Init,
    InAckEvent(u32),
    PktsAcked(u32),
    CongControl(u32),
    SndbufExpand,
    Release,
}

/// Controller with a window of 20 packets that records its calls.
#[derive(Debug, Default, Clone)]
struct Noted {
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Noted {
    fn note(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }

    fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    fn ack_events(&self) -> Vec<u32> {
        let flags = |call| if let Call::InAckEvent(flags) = call { Some(flags) } else { None };
        self.calls().into_iter().filter_map(flags).collect()
    }

    fn ack_flags(&self) -> Vec<u32> {
        let flags = |call| if let Call::CongControl(flags) = call { Some(flags) } else { None };
        self.calls().into_iter().filter_map(flags).collect()
    }
}

impl CongestionControl for Noted {
    fn init(&mut self, tp: &mut TcpSock) {
        self.note(Call::Init);
        tp.snd_cwnd = 20;
    }

    fn release(&mut self, _: &mut TcpSock) {
        self.note(Call::Release);
    }

    fn has_cong_control(&self) -> bool {
        true
    }

    fn cong_control(&mut self, _: &mut TcpSock, _: u32, flag: u32, _: &RateSample) {
        self.note(Call::CongControl(flag));
    }

    fn ssthresh(&mut self, tp: &mut TcpSock) -> u32 {
        tp.snd_ssthresh
    }

    fn undo_cwnd(&mut self, tp: &mut TcpSock) -> u32 {
        tp.snd_cwnd
    }

    fn in_ack_event(&mut self, _: &mut TcpSock, flags: u32) {
        self.note(Call::InAckEvent(flags));
    }

    fn pkts_acked(&mut self, _: &mut TcpSock, sample: &AckSample) {
        self.note(Call::PktsAcked(sample.pkts_acked));
    }

    fn sndbuf_expand(&mut self, _: &mut TcpSock) -> Option<u32> {
        self.note(Call::SndbufExpand);
        Some(5)
    }
}

/// Transfer 300 segments over a path that loses the `lost`th.
fn transfer(lost: Option<usize>) -> (Noted, Path<Noted>) {
    let noted = Noted::default();
    let mut left = 0;
    let judge = move |_, _: &_| {
        left += 1;
        if Some(left) == lost { Fate::Lost } else { Fate::Arrives }
    };
    let mut path = Path::new(noted.clone(), ms(20)).judging_segments(judge);
    // A growing window changes with every ACK, so every ACK takes the slow path.
    path.receiver = Receiver::new(of_window(45 * 1448));
    path.sender.write(path.now, Bytes::new(300 * 1448));
    path.sender.finish();
    path.run_to_completion(Duration::from_secs(20));
    (noted, path)
}

#[test]
fn an_ack_that_only_advances_takes_no_slow_path() {
    let (noted, _path) = transfer(None);
    assert!(noted.ack_events().len() > 100);
    assert!(noted.ack_events().iter().all(|flags| *flags == CA_ACK_WIN_UPDATE));
    let plain = FLAG_SND_UNA_ADVANCED | FLAG_WIN_UPDATE | FLAG_DATA_ACKED | FLAG_SET_XMIT_TIMER;
    // The ACK of the last, shorter segment or of a lone one may have been delayed.
    let all_plain = noted.ack_flags().iter().all(|flags| flags & !FLAG_ACK_MAYBE_DELAYED == plain);
    assert!(all_plain, "{:x?}", noted.ack_flags());
}

#[test]
fn sacks_take_the_slow_path_and_the_flags_tell_of_the_loss() {
    let (noted, _path) = transfer(Some(60));
    let slow = noted.ack_events().iter().filter(|flags| *flags & CA_ACK_SLOWPATH != 0).count();
    assert!((3..60).contains(&slow), "{slow}");
    assert!(noted.ack_events().iter().all(|flags| flags & CA_ACK_ECE == 0));
    let sacked: Vec<u32> =
        noted.ack_flags().into_iter().filter(|flags| flags & FLAG_DATA_SACKED != 0).collect();
    assert!(sacked.len() >= 3, "{sacked:x?}");
    assert!(sacked.iter().all(|flags| flags & FLAG_SLOWPATH != 0), "{sacked:x?}");
    assert!(sacked.iter().any(|flags| flags & (FLAG_DATA_ACKED | FLAG_SND_UNA_ADVANCED) == 0));
    let repaired = noted.ack_flags().iter().filter(|f| **f & FLAG_RETRANS_DATA_ACKED != 0).count();
    assert_eq!(repaired, 1, "one segment was retransmitted");
}

#[test]
fn each_ack_tells_what_it_acknowledges_then_that_it_came_then_what_it_is_worth() {
    let (noted, path) = transfer(None);
    let calls: Vec<Call> =
        noted.calls().into_iter().filter(|call| *call != Call::SndbufExpand).collect();
    assert_eq!(calls[0], Call::Init);
    for ack in calls[1..].chunks(3) {
        let in_order =
            matches!(ack, [Call::PktsAcked(1..), Call::InAckEvent(_), Call::CongControl(_)]);
        assert!(in_order, "{ack:?}");
    }
    drop(path);
    assert_eq!(noted.calls().last(), Some(&Call::Release));
    assert_eq!(noted.calls().iter().filter(|call| **call == Call::Release).count(), 1);
}

#[test]
fn a_connection_that_was_never_established_has_nothing_to_release() {
    let noted = Noted::default();
    let path = Path::new(noted.clone(), ms(20)).judging_segments(|_, _| Fate::Lost);
    drop(path);
    assert_eq!(noted.calls(), []);
}

#[test]
fn the_send_buffer_grows_to_as_many_windows_as_the_congestion_control_says() {
    let (noted, mut path) = transfer(None);
    assert_eq!(noted.calls()[1], Call::SndbufExpand, "at the start, behind init");
    assert_eq!(path.sender.socket().sk().sk_sndbuf, 5 * 20 * 4352);
}

#[test]
fn what_this_tcp_does_not_do_is_refused_by_its_name() {
    let refused = |name| CALLER.accept(Module::fixture(name)).unwrap_err().to_string();
    assert_eq!(
        refused("info"),
        "cc/info.c defines get_info, which the simulator's TCP never calls: leave it out, or run it where it is called"
    );
    assert!(CALLER.accept(Module::fixture("marks")).is_ok(), "it has ECN");
    for name in Registry::new().names() {
        let started = Registry::new().start(&name, &Setup::default(), &CALLER);
        assert!(started.is_ok(), "{name}: {started:?}");
    }
}
