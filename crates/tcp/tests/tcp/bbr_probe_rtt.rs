//! BBR's PROBE_RTT, as window, packets in flight and transmissions show it.

use skyhop_units::{Duration, Instant};

use crate::path::{Path, module, ms};

/// Stretch of the trace with a window of four segments.
struct Probe {
    from: Instant,
    to: Instant,
    cwnd_before: u32,
    cwnd_after: u32,
}

/// PROBE_RTT of draft-cardwell-iccrg-bbr-congestion-control-00 4.3.5: when the minimum RTT is ten seconds old,
/// four segments for 200 ms and a round trip, then the window is restored.
#[test]
fn every_ten_seconds_four_segments_for_200_ms() {
    let mut path = Path::new(module("bbr", &[]), ms(20)).with_bottleneck("50 Mbit/s", 330);
    path.sender.write_without_end();
    path.run_for(Duration::from_secs(45));
    let mut probes: Vec<Probe> = Vec::new();
    for pair in path.trace.windows(2) {
        let (before, (at, after)) = (pair[0].1.cwnd, pair[1]);
        if before != 4 && after.cwnd == 4 {
            probes.push(Probe { from: at, to: at, cwnd_before: before, cwnd_after: 0 });
        } else if before == 4 && after.cwnd != 4 {
            let probe = probes.last_mut().expect("it began");
            (probe.to, probe.cwnd_after) = (at, after.cwnd);
        }
    }
    assert_eq!(probes.len(), 4, "in 45 s");
    assert!(probes[0].from >= Instant::START + Duration::from_secs(10));
    for pair in probes.windows(2) {
        // The end of the probe renews the minimum RTT, and so do the next two round trips as long as there is
        // no queue.
        let quiet = pair[1].from - pair[0].to;
        assert!((ms(10_000)..=ms(10_100)).contains(&quiet), "{quiet}");
    }
    for probe in &probes {
        let inside = |at: &Instant| (probe.from..probe.to).contains(at);
        let low = path.trace.iter().find(|(at, i)| inside(at) && i.inflight <= 4);
        let (low, _) = low.expect("the window drains");
        // The packets in flight drain in a round trip.
        assert!(*low - probe.from <= ms(60), "{}", *low - probe.from);
        let held = probe.to - *low;
        assert!((ms(200)..=ms(285)).contains(&held), "{held}");
        let sent = path.sent.iter().filter(|(at, _)| (*low..probe.to).contains(at)).count() as u64;
        // Four packets per round trip of 40 ms.
        assert!(sent <= 4 * (held.as_micros() / 40_000 + 1), "{sent} segments in {held}");
        // The allowance for bursts depends on the current gain.
        assert!(probe.cwnd_after + 12 >= probe.cwnd_before);
    }
}
