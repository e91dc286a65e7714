//! ECN of RFC 3168: negotiation, ECT packets, and the effects of a mark.

use skyhop_cc::bindings::*;
use skyhop_cc::{Instance, Module};
use skyhop_model::{CongestionState, Ecn};
use skyhop_tcp::{
    Ack, CaEvent, CongestionControl, RateSample, Receiver, ReceiverConfig, Segment, SegmentKind,
    Sender, SenderConfig, TcpSock,
};
use skyhop_units::{Duration, Instant};

use crate::path::{Fate, Path, lose_once, ms};
use crate::receiving::of_window;
use crate::reno::Reno;

fn asking() -> SenderConfig {
    SenderConfig { ecn: true, ..SenderConfig::default() }
}

/// Mark these segments when they pass for the first time.
fn mark_once(
    marked: impl IntoIterator<Item = u64> + 'static,
) -> impl FnMut(Instant, &Segment) -> Fate + 'static {
    let mut lose = lose_once(marked);
    move |at, segment| match lose(at, segment) {
        Fate::Lost => Fate::Marked,
        fate => fate,
    }
}

/// Run a flow with endless data over 100 ms and 100 Mbit/s.
fn path_with(judge: impl FnMut(Instant, &Segment) -> Fate + 'static) -> Path<Reno> {
    let mut path = Path::with_config(asking(), Reno::default(), ms(50))
        .with_bottleneck("100 Mbit/s", 100_000)
        .judging_segments(judge);
    path.sender.write_without_end();
    path
}

/// Exchange SYN and SYN-ACK of these ends; the first SYN is lost if `retried`.
fn handshake(wants: bool, willing: bool, retried: bool) -> (Segment, Ack, Segment) {
    let mut sender = Sender::new(SenderConfig { ecn: wants, ..asking() }, Reno::default());
    let mut receiver = Receiver::new(ReceiverConfig { ecn: willing, ..ReceiverConfig::default() });
    sender.write_without_end();
    let mut now = Instant::START;
    let mut syn = sender.poll_transmit(now).expect("a SYN");
    if retried {
        now = sender.next_timer().expect("a timer");
        sender.on_timer(now);
        syn = sender.poll_transmit(now).expect("another SYN");
    }
    let ack = receiver.on_segment(now, &syn).expect("a SYN-ACK");
    sender.on_ack(now, &ack);
    let handshake_ack = sender.poll_transmit(now).expect("the handshake's end");
    assert_eq!(handshake_ack.kind, SegmentKind::HandshakeAck);
    assert_eq!(handshake_ack.ecn, Ecn::NotEct);
    (syn, ack, sender.poll_transmit(now).expect("data"))
}

#[test]
fn ecn_is_spoken_where_one_end_asks_and_the_other_is_willing() {
    let (syn, ack, data) = handshake(true, true, false);
    assert!(syn.cwr && syn.ecn == Ecn::NotEct, "{syn:?}");
    assert!(ack.ece && data.ecn == Ecn::Ect0, "{ack:?} {data:?}");
    let (syn, ack, data) = handshake(false, true, false);
    assert!(!(syn.cwr || ack.ece) && data.ecn == Ecn::NotEct, "not asked for");
    let (syn, ack, data) = handshake(true, false, false);
    assert!(syn.cwr && !ack.ece && data.ecn == Ecn::NotEct, "declined");
}

/// A retransmitted SYN does not request ECN (RFC 3168 6.1.1.1).
#[test]
fn a_syn_that_leaves_again_asks_for_nothing() {
    let (syn, ack, data) = handshake(true, true, true);
    assert!(!(syn.cwr || ack.ece), "{syn:?} {ack:?}");
    assert_eq!(data.ecn, Ecn::NotEct);
}

/// Retransmissions are not ECT (RFC 3168 6.1.5).
#[test]
fn data_is_ect_unless_it_leaves_again() {
    let mut path = path_with(lose_once([100, 150, 151]));
    path.run_for(Duration::from_secs(3));
    assert_eq!(path.retransmissions(), [100, 150, 151]);
    for (_, segment) in &path.sent {
        let expected = if segment.retransmission { Ecn::NotEct } else { Ecn::Ect0 };
        assert_eq!(segment.ecn, expected, "{segment:?}");
    }
}

#[test]
fn a_mark_halves_the_window_and_costs_no_segment() {
    let mut path = path_with(mark_once([200]));
    path.run_for(Duration::from_secs(3));
    let reduced = path.trace.iter().position(|(_, i)| i.ca_state == CongestionState::Cwr);
    let reduced = reduced.expect("a reduction");
    let before = path.trace[reduced - 1].1.cwnd;
    let after = path.trace[reduced..].iter().find(|(_, i)| i.ca_state == CongestionState::Open);
    let (_, after) = after.expect("its end");
    assert_eq!(after.cwnd, before / 2, "from {before}");
    assert_eq!(after.ssthresh, Some(before / 2));
    assert!(path.retransmissions().is_empty());
    let info = path.sender.info();
    assert_eq!((info.recoveries, info.undos, info.lost), (0, 0, 0));
    // All ACKs of a round trip have ECE set: Linux counts the packets they deliver.
    let round = u64::from(before);
    assert!((round / 2..=round + 10).contains(&info.delivered_ce), "{}", info.delivered_ce);
}

/// ECE is set from the mark until CWR arrives, and CWR once, on new data (RFC 3168 6.1.2, 6.1.3).
#[test]
fn the_receiver_echoes_until_the_sender_says_that_it_has_reduced() {
    let mut path = path_with(mark_once([200]));
    path.run_for(Duration::from_secs(3));
    let marked: Vec<_> = path.sent.iter().filter(|(_, s)| s.cwr).collect();
    let [(cwr_left, cwr)] = marked[..] else { panic!("{marked:?}") };
    assert!(!cwr.retransmission && cwr.ecn == Ecn::Ect0);
    let echoing: Vec<Instant> =
        path.acks.iter().filter(|(_, a)| a.ece && !a.syn).map(|(at, _)| *at).collect();
    let (first, last) = (echoing[0], echoing[echoing.len() - 1]);
    assert!(*cwr_left >= first + ms(50), "half a round trip behind the echo");
    assert!(last < *cwr_left + ms(60), "until the CWR arrives");
    // Every ACK in between has ECE set, none after.
    let between = path.acks.iter().filter(|(at, a)| !a.syn && (first..=last).contains(at));
    assert!(between.clone().count() > 20 && between.clone().all(|(_, a)| a.ece));
    let answer = path.acks.iter().find(|(_, a)| !a.syn && a.cumulative > cwr.seq).expect("an ACK");
    assert!(!answer.1.ece, "{answer:?}");
}

#[test]
fn all_marks_of_a_round_are_one_reduction_and_those_of_the_next_are_another() {
    let mut path = path_with(mark_once(200..260));
    path.run_for(Duration::from_secs(3));
    let reductions = |path: &Path<Reno>| path.sent.iter().filter(|(_, s)| s.cwr).count();
    assert_eq!(reductions(&path), 1);
    let late = path.sent[path.sent.len() - 1].1.seq + 50;
    path.judge_segment = Box::new(mark_once([late]));
    path.run_for(Duration::from_secs(1));
    assert_eq!(reductions(&path), 2);
}

#[test]
fn without_ecn_what_would_have_been_marked_is_lost() {
    let mut path = Path::new(Reno::default(), ms(50)).judging_segments(mark_once([200]));
    path.sender.write_without_end();
    path.run_for(Duration::from_secs(1));
    assert_eq!(path.retransmissions(), [200]);
    assert_eq!(path.sender.info().delivered_ce, 0);
}

/// The undo of a spurious loss does not undo the reduction for a mark.
#[test]
fn a_reduction_that_a_mark_asks_for_is_not_undone() {
    let run = |mark: bool| {
        let judge = move |_: Instant, segment: &Segment| match segment.seq {
            300 if !segment.retransmission => Fate::Late(ms(40)),
            301 if mark => Fate::Marked,
            _ => Fate::Arrives,
        };
        let mut path = path_with(judge);
        path.run_for(Duration::from_secs(2));
        let recovered =
            path.trace.iter().position(|(_, i)| i.ca_state == CongestionState::Recovery);
        let before = path.trace[recovered.expect("a recovery") - 1].1.cwnd;
        (f64::from(path.sender.info().cwnd) / f64::from(before), path.sender.info().undos)
    };
    let (kept, undos) = run(false);
    assert!(kept > 0.95 && undos > 0, "{kept}, {undos} undone");
    let (kept, _) = run(true);
    assert!(kept < 0.8, "{kept}");
}

/// Linux acknowledges a mark at once, although RFC 3168 6.1.3 leaves delayed ACKs as they are.
#[test]
fn a_mark_and_what_says_that_the_window_was_reduced_are_acknowledged_at_once() {
    let mut receiver = Receiver::new(of_window(45 * 1448));
    let now = |n: u64| Instant::START + ms(n);
    let plain = Segment {
        kind: SegmentKind::Syn,
        seq: 0,
        offset: 0,
        len: 1448,
        tsval: 1,
        tsecr: 0,
        fin: false,
        push: false,
        retransmission: false,
        ecn: Ecn::NotEct,
        cwr: true,
    };
    assert!(receiver.on_segment(now(0), &plain).is_some_and(|ack| ack.ece));
    let data = |seq| Segment {
        kind: SegmentKind::Data,
        seq,
        offset: 1448 * seq,
        ecn: Ecn::Ect0,
        cwr: false,
        ..plain
    };
    let acked: Vec<bool> = (0..18)
        .map(|seq| receiver.on_segment(now(1 + seq), &data(seq)).is_some_and(|ack| !ack.ece))
        .collect();
    assert_eq!(acked[14..], [true, true, false, true], "the quick ACKs of the start are over");
    let mut answers = Vec::new();
    for seq in 18..26 {
        let ecn = if seq == 18 { Ecn::Ce } else { Ecn::Ect0 };
        let segment = Segment { ecn, cwr: seq == 23, ..data(seq) };
        answers.push(receiver.on_segment(now(20 + seq), &segment).map(|ack| ack.ece));
    }
    let (echo, none) = (Some(true), Some(false));
    assert_eq!(answers, [echo, echo, None, echo, None, none, None, none]);
}

/// Controller with a window of 30 that records the ECN events it receives.
#[derive(Debug, Default)]
struct Listening {
    echoes: u32,
    flagged: u32,
    sampled: i32,
    received: (u32, u32),
}

impl CongestionControl for Listening {
    fn init(&mut self, tp: &mut TcpSock) {
        tp.snd_cwnd = 30;
    }

    fn has_cong_control(&self) -> bool {
        true
    }

    fn needs_ecn(&self) -> bool {
        true
    }

    fn cong_control(&mut self, _: &mut TcpSock, _: u32, flag: u32, sample: &RateSample) {
        self.flagged += u32::from(flag & FLAG_ECE != 0);
        self.sampled = self.sampled.max(sample.delivered_ce);
    }

    fn in_ack_event(&mut self, _: &mut TcpSock, flags: u32) {
        if flags & CA_ACK_ECE != 0 {
            assert!(flags & CA_ACK_SLOWPATH != 0);
            self.echoes += 1;
        }
    }

    fn cwnd_event(&mut self, _: &mut TcpSock, event: CaEvent) {
        match event {
            CaEvent::EcnIsCe => self.received.0 += 1,
            CaEvent::EcnNoCe => self.received.1 += 1,
            _ => {}
        }
    }

    fn ssthresh(&mut self, _: &mut TcpSock) -> u32 {
        30
    }

    fn undo_cwnd(&mut self, _: &mut TcpSock) -> u32 {
        30
    }
}

#[test]
fn a_congestion_control_hears_of_marks_in_every_way_that_linux_has() {
    let mut path = Path::new(Listening::default(), ms(20)).judging_segments(mark_once([100]));
    path.sender.write_without_end();
    path.run_for(Duration::from_secs(1));
    let (delivered_ce, now) = (path.sender.info().delivered_ce, path.now);
    let heard = path.sender.congestion_control();
    assert!(heard.echoes >= 10 && heard.flagged == heard.echoes, "{heard:?}");
    assert!((1..=30).contains(&heard.sampled), "{heard:?}");
    assert!(delivered_ce >= heard.echoes.into(), "{delivered_ce} {heard:?}");
    assert_eq!(heard.received, (0, 0), "no data came the other way");
    for ecn in [Ecn::Ce, Ecn::Ect0, Ecn::Ect0, Ecn::NotEct] {
        path.sender.on_data(now, ecn);
    }
    assert_eq!(path.sender.congestion_control().received, (1, 2));
}

/// A controller that needs ECN has it requested, and all its packets are ECT, retransmissions too
/// (INET_ECN_xmit of Linux).
#[test]
fn a_module_that_needs_ecn_gets_it_on_everything() {
    let marks = Instance::new(Module::fixture("marks"), &[]).expect("a whole module");
    let mut path = Path::new(marks, ms(20)).judging_segments(lose_once([60]));
    path.sender.write_without_end();
    let syn = Sender::new(SenderConfig::default(), Listening::default())
        .poll_transmit(Instant::START)
        .expect("a SYN");
    assert!(syn.cwr && syn.ecn == Ecn::Ect0, "{syn:?}");
    path.run_for(Duration::from_secs(1));
    assert_eq!(path.retransmissions(), [60]);
    assert!(path.sent.iter().all(|(_, s)| s.ecn == Ecn::Ect0));
}
