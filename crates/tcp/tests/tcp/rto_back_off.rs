//! Retransmission timeout and its back-off, as transmissions show them while no ACK arrives.

use skyhop_model::CongestionState;
use skyhop_tcp::Receiver;
use skyhop_units::{Duration, Instant};

use crate::path::{Fate, Path, ms};
use crate::receiving::of_window;
use crate::reno::Reno;

fn at(ms_since_start: u64) -> Instant {
    Instant::START + ms(ms_since_start)
}

/// Run with an RTT of exactly 40 ms, ten segments at a time, and an outage from 1 s to `end_ms`.
fn through_an_outage(end_ms: u64) -> Path<Reno> {
    let mut path = Path::new(Reno::default(), ms(20)).judging_segments(move |now, _| {
        if (at(1000)..at(end_ms)).contains(&now) { Fate::Lost } else { Fate::Arrives }
    });
    path.receiver = Receiver::new(of_window(10 * 1448));
    path.sender.write_without_end();
    path
}

/// Every timeout doubles the next, up to a bound (RFC 6298 5.5; Linux's 120 s).
#[test]
fn each_timeout_doubles_the_next_up_to_two_minutes() {
    let mut path = through_an_outage(900_000);
    path.run_for(Duration::from_secs(890));
    let before = path.trace.iter().rfind(|(time, _)| *time < at(1000)).expect("ACKs").1;
    // srtt + max(200 ms, 4 * rttvar): the RTT has hardly varied.
    assert!((ms(240)..=ms(242)).contains(&before.rto), "{}", before.rto);
    let lost = path.sent.iter().position(|(time, _)| *time >= at(1000)).expect("an outage");
    let head = path.sent[lost].1.seq;
    // RFC 8985 7.3: the timer restarts with the tail loss probe.
    let probe = path.sent[lost..].iter().find(|(_, s)| s.retransmission).expect("a probe");
    assert!(probe.1.seq > head, "the last segment");
    let of_head = path.sent[lost + 1..].iter().filter(|(_, segment)| segment.seq == head);
    let repeats: Vec<Instant> = of_head.map(|(time, _)| *time).collect();
    assert_eq!(repeats[0] - probe.0, before.rto);
    let gaps: Vec<Duration> = repeats.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mut rto = before.rto;
    for gap in &gaps {
        rto = (rto * 2).min(Duration::from_secs(120));
        assert_eq!(*gap, rto, "{gaps:?}");
    }
    assert_eq!(gaps.last(), Some(&Duration::from_secs(120)));
    // Nothing else is sent: the window is one segment, and there is the tail loss probe.
    let after = path.sent.iter().filter(|(time, _)| *time > at(1040)).count();
    assert_eq!(after, repeats.len() + path.sender.info().probes as usize);
}

/// A new RTT sample ends the back-off (RFC 6298 5.7); slow start begins from one segment (RFC 5681 3.1).
#[test]
fn the_first_ack_ends_the_back_off() {
    let mut path = through_an_outage(4_000);
    path.run_for(ms(12_000));
    let first = path.trace.iter().position(|(time, _)| *time > at(4_000)).expect("an event");
    let backed_off = path.trace[first].1;
    assert_eq!(backed_off.ca_state, CongestionState::Loss);
    assert!(backed_off.rto > ms(3_000), "{}", backed_off.rto);
    assert_eq!(backed_off.cwnd, 1);
    let news = path.trace[first..].iter().find(|(_, i)| i.delivered > backed_off.delivered);
    let (_, news) = news.expect("an ACK after the outage");
    assert!(news.rto < ms(500), "{}", news.rto);
    let end = path.sender.info();
    assert_eq!(end.ca_state, CongestionState::Open);
    assert!(end.cwnd > 1);
}
