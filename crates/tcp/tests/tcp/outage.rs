//! Retransmission timeouts, justified and spurious ones.

use skyhop_model::CongestionState;
use skyhop_tcp::Receiver;
use skyhop_units::{Duration, Instant};

use crate::path::{Fate, Path, ms};
use crate::receiving::of_window;
use crate::reno::Reno;

fn at(ms_since_start: u64) -> Instant {
    Instant::START + ms(ms_since_start)
}

/// The receiver's window keeps the queue short and the timeout near its minimum.
fn window_limited() -> Path<Reno> {
    let mut path = Path::new(Reno::default(), ms(20)).with_bottleneck("10 Mbit/s", 100);
    path.receiver = Receiver::new(of_window(40 * 1448));
    path
}

#[test]
fn an_outage_backs_the_timeout_off_and_ends_in_slow_start() {
    let outage = at(500)..at(5000);
    let mut path = window_limited();
    path.judge_segment =
        Box::new(move |now, _| if outage.contains(&now) { Fate::Lost } else { Fate::Arrives });
    path.sender.write_without_end();
    path.run_for(ms(12_000));
    let during: Vec<Instant> = path
        .sent
        .iter()
        .map(|(time, _)| *time)
        .filter(|time| (at(700)..at(5000)).contains(time))
        .collect();
    let gaps: Vec<Duration> = during.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() >= 3, "{during:?}");
    // The first gap lies between the probe and the first timeout.
    for pair in gaps[1..].windows(2) {
        assert_eq!(pair[1], pair[0] * 2, "{gaps:?}");
    }
    let info = path.sender.info();
    assert!(info.timeouts >= 3);
    assert_eq!(info.ca_state, CongestionState::Open);
    assert!(path.receiver.next_expected() > 1500, "{}", path.receiver.next_expected());
}

#[test]
fn a_spurious_timeout_is_undone() {
    // Nothing is lost, but for one second no ACK passes.
    let mut path = window_limited();
    let hold = at(500)..at(1500);
    path.judge_ack =
        Box::new(
            move |now, _| {
                if hold.contains(&now) { Fate::Late(hold.end - now) } else { Fate::Arrives }
            },
        );
    path.sender.write_without_end();
    path.run_for(ms(499));
    let before = path.sender.info();
    path.run_for(ms(1500));
    let info = path.sender.info();
    assert!(info.timeouts >= 1);
    assert!(info.undos >= 1);
    assert_eq!(info.ca_state, CongestionState::Open);
    assert!(info.cwnd >= before.cwnd, "{} before, {} after", before.cwnd, info.cwnd);
    assert_eq!(info.ssthresh, before.ssthresh);
    // Only the retransmissions of timeouts and the probe, not the window.
    let resent: Vec<_> = path.sent.iter().filter(|(_, s)| s.retransmission).collect();
    assert!(resent.len() as u64 <= info.timeouts + info.probes, "{info:?} {resent:#?}");
}
