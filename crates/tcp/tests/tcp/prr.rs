//! Proportional rate reduction (RFC 6937bis): transmissions during a recovery.

use skyhop_model::CongestionState;
use skyhop_tcp::TcpInfo;
use skyhop_units::{Duration, Instant};

use crate::path::{Path, lose_once, ms};
use crate::reno::Reno;

/// Recovery of Reno, which halves the window: the state before it, all states during it, and the one after it.
struct Recovery {
    path: Path<Reno>,
    moments: Vec<(Instant, TcpInfo)>,
    ssthresh: u32,
}

/// Run a flow over 20 Mbit/s and 40 ms that loses these segments once.
fn recovery_of(lost: &[u64]) -> Recovery {
    let mut path = Path::new(Reno::default(), ms(20)).with_bottleneck("20 Mbit/s", 100_000);
    path.judge_segment = Box::new(lose_once(lost.to_vec()));
    path.transfer(1000);
    path.run_to_completion(Duration::from_secs(5));
    assert_eq!(path.retransmissions(), lost, "each once, in order");
    assert_eq!((path.sender.info().timeouts, path.sender.info().recoveries), (0, 1));
    let is_in = |info: &TcpInfo| info.ca_state == CongestionState::Recovery;
    let from = path.trace.iter().position(|(_, info)| is_in(info)).expect("a recovery");
    let length = path.trace[from..].iter().take_while(|(_, info)| is_in(info)).count();
    let moments = path.trace[from - 1..=from + length].to_vec();
    let ssthresh = moments[1].1.ssthresh.expect("a threshold");
    Recovery { path, moments, ssthresh }
}

/// While more than ssthresh is in flight, one segment leaves for two delivered, rather than all at the end of
/// half a round trip of silence (RFC 6937bis 6.2).
#[test]
fn above_ssthresh_the_window_glides_down_in_proportion() {
    let Recovery { moments, ssthresh, .. } = recovery_of(&[60]);
    let before = moments[0].1;
    let above: Vec<_> = moments[1..].iter().filter(|(_, i)| i.inflight > ssthresh).collect();
    assert!(above.len() > 10, "{} moments", above.len());
    for (at, info) in above {
        let delivered = (info.delivered - before.delivered) as f64;
        let sent = (info.sent - before.sent) as f64;
        let due = delivered * f64::from(ssthresh) / f64::from(before.cwnd);
        // The count is rounded up, and the first retransmission leaves at once.
        assert!((sent - due).abs() <= 2.0, "{at}: {sent} sent for {delivered} delivered");
    }
    assert_eq!(moments[moments.len() - 1].1.cwnd, ssthresh);
}

/// Slow-start bound of PRR: after a burst loss less than ssthresh is in flight, and one segment more than
/// delivered may leave per ACK, so the ACK clock spreads the segments that fill the gap (RFC 6937bis 6.2).
#[test]
fn a_burst_loss_is_paced_out_by_the_ack_clock() {
    let lost: Vec<u64> = (60..110).collect();
    let Recovery { path, moments, ssthresh } = recovery_of(&lost);
    let before = moments[0].1;
    assert!(moments.iter().any(|(_, i)| i.inflight + 10 < ssthresh), "far below ssthresh");
    for (event, (at, info)) in moments[1..moments.len() - 1].iter().enumerate() {
        let (sent, delivered) = (info.sent - before.sent, info.delivered - before.delivered);
        assert!(sent <= delivered + event as u64 + 1, "{at}: {sent} sent for {delivered}");
        assert!(info.inflight <= ssthresh.max(before.inflight), "{at}: {info:?}");
    }
    for pair in moments.windows(2) {
        // An ACK of two segments releases these two and one more.
        let (burst, acked) =
            (pair[1].1.sent - pair[0].1.sent, pair[1].1.delivered - pair[0].1.delivered);
        assert!(burst <= acked + 1, "{}: {burst} leave for {acked}", pair[1].0);
    }
    let retransmitted: Vec<Instant> =
        path.sent.iter().filter(|(_, s)| s.retransmission).map(|(at, _)| *at).collect();
    let spread = retransmitted[retransmitted.len() - 1] - retransmitted[0];
    // The ACKs of 50 segments of 0.6 ms each clock them out.
    assert!(spread >= ms(15), "{spread}");
    assert_eq!(moments[moments.len() - 1].1.cwnd, ssthresh);
}
