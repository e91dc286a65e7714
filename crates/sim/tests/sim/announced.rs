//! Tests of announced handovers in whole scenarios: recipients, and the reactions of SaTCP and SatPipe.

use crate::scenario::{experiment, fixed, simulate};
use skyhop_model::{EventKind, PhaseKind};
use skyhop_record::{EventRow, RunData};

/// Scenario of 50 Mbit/s and 40 ms with a queue of one BDP; every 15 s an outage of 100 ms, then 60 ms or 40 ms.
fn handovers(signal: &str, flows: &str) -> String {
    let change = |handover: u32| {
        let rtt_ms = if handover % 2 == 1 { 60 } else { 40 };
        format!(
            "[[change]]\nat = \"{} s\"\noutage = \"100 ms\"\nrtt = \"{rtt_ms} ms\"\n",
            15 * handover
        )
    };
    let changes: String = (1..=4).map(change).collect();
    fixed(50, 40, 250_000, 70, &format!("{signal}\n{changes}{flows}"))
}

fn rows(data: &RunData, kind: EventKind) -> Vec<&EventRow> {
    data.events.iter().filter(|row| row.kind == kind).collect()
}

fn goodput_bps(data: &RunData) -> f64 {
    data.summary.flows[0].goodput_bps as f64
}

/// Goodput of the time after `from_s`.
fn late_goodput_bps(data: &RunData, from_s: i64) -> f64 {
    let late: Vec<i64> = data
        .flows
        .iter()
        .filter(|r| r.t_ns > from_s * 1_000_000_000)
        .map(|r| r.goodput_bps)
        .collect();
    late.iter().sum::<i64>() as f64 / late.len() as f64
}

#[test]
fn without_a_signal_satcp_is_cubic_and_satpipe_is_bbr() {
    let paths = [
        handovers("", ""),
        fixed(20, 30, 75_000, 20, "[[change]]\nat = \"5 s\"\nloss = \"1 %\"\n"),
        fixed(10, 80, 400_000, 20, "[[change]]\nat = \"8 s\"\noutage = \"2 s\"\n"),
    ];
    for path in paths {
        // SatPipe's min_rtt lives for 20 s, as long as needed for one probe between two handovers.
        let as_bbr = "satpipe\"\nsatpipe.min_rtt_window = \"10 s";
        for (ours, plain) in [("satcp", "cubic"), (as_bbr, "bbr")] {
            let run = |cc: &str| simulate(&format!("{path}[[flow]]\ncc = \"{cc}\"\ncount = 2\n"));
            let (ours_data, plain_data) = (run(ours), run(plain));
            assert_eq!(ours_data.flows, plain_data.flows, "{ours}: {path}");
            assert_eq!(ours_data.link, plain_data.link, "{ours}: {path}");
            assert_eq!(ours_data.events, plain_data.events, "{ours}: {path}");
        }
    }
}

#[test]
fn announcements_are_made_in_time_and_recorded() {
    let signal = "[signal]\nsource = \"path\"\nlead = \"0.5 s\"";
    let data = simulate(&handovers(signal, "[[flow]]\ncc = \"satcp\"\n[[flow]]\ncc = \"cubic\"\n"));
    let announcements = rows(&data, EventKind::Announcement);
    let expected: Vec<(i64, Option<i64>)> =
        (1..=4).map(|n| (15_000_000_000 * n - 500_000_000, Some(15_000_000_000 * n))).collect();
    let found: Vec<(i64, Option<i64>)> = announcements.iter().map(|r| (r.t_ns, r.at_ns)).collect();
    assert_eq!(found, expected);
    let holds = rows(&data, EventKind::Phase(PhaseKind::Hold));
    assert_eq!(holds.len(), 4);
    for (hold, announcement) in holds.iter().zip(&announcements) {
        assert_eq!(hold.flow, Some(0), "CUBIC does not listen");
        let waited_ns = hold.t_ns - announcement.t_ns;
        assert!((0..100_000_000).contains(&waited_ns), "with the next ACK: {waited_ns} ns later");
        assert_eq!(hold.length_ns, Some(1_300_000_000));
    }
}

#[test]
fn two_connections_both_drain() {
    let signal = "[signal]\nsource = \"path\"\nlead = \"1 s\"";
    let data = simulate(&handovers(signal, "[[flow]]\ncc = \"satpipe\"\ncount = 2\n"));
    for flow in [0, 1] {
        for kind in [EventKind::Phase(PhaseKind::Drain), EventKind::Phase(PhaseKind::ProbeRtt)] {
            let begins: Vec<i64> =
                rows(&data, kind).iter().filter(|r| r.flow == Some(flow)).map(|r| r.t_ns).collect();
            assert_eq!(begins.len(), 4, "flow {flow}, {kind:?}: {begins:?}");
        }
        let closed = |at_ms: i64| {
            let row = data.flows.iter().find(|r| r.flow == flow && r.t_ns == at_ms * 1_000_000);
            row.is_some_and(|row| row.cwnd_packets == 4)
        };
        for handover in 1..=4 {
            let at_ms = 15_000 * handover;
            assert!(closed(at_ms + 100) && !closed(at_ms - 100), "flow {flow} at {at_ms} ms");
        }
    }
}

#[test]
fn holding_the_window_pays_where_handovers_lose_packets() {
    let lossy = |signal: &str, flow: &str| {
        let changes: String = (1..20)
            .map(|n| format!("[[change]]\nat = \"{} s\"\noutage = \"40 ms\"\n", 3 * n))
            .collect();
        simulate(&fixed(50, 60, 1_000_000, 60, &format!("{signal}\n{changes}{flow}")))
    };
    let signal = "[signal]\nsource = \"path\"\nlead = \"0.2 s\"";
    let cubic = goodput_bps(&lossy(signal, "[[flow]]"));
    let published = goodput_bps(&lossy(signal, "[[flow]]\ncc = \"satcp\""));
    let freeze = goodput_bps(&lossy(signal, "[[flow]]\ncc = \"satcp\"\nsatcp.mode = \"freeze\""));
    assert!(published > 1.2 * cubic, "published {published}, CUBIC {cubic}");
    assert!(freeze > 1.2 * cubic, "freeze {freeze}, CUBIC {cubic}");
}

/// Announcements that are too early, too late, missing, and repeated every 200 ms to the end.
#[test]
fn wrong_announcements_do_no_lasting_harm() {
    let signals = [
        "source = \"path\"\nerror = \"-4 s\"",
        "source = \"path\"\nerror = \"4 s\"",
        "source = \"none\"",
        "source = \"path\"\nlead = \"20 s\"",
        "source = \"schedule\"\nperiod = \"7 s\"",
    ];
    for (flow, plain) in [
        ("cc = \"satcp\"", "cc = \"cubic\""),
        ("cc = \"satcp\"\nsatcp.mode = \"freeze\"", "cc = \"cubic\""),
        ("cc = \"satpipe\"", "cc = \"bbr\""),
    ] {
        let late = |signal: &str, flow: &str| {
            let text = handovers(&format!("[signal]\n{signal}"), &format!("[[flow]]\n{flow}"));
            late_goodput_bps(&simulate(&text), 20)
        };
        let reference = late("source = \"none\"", plain);
        for signal in signals {
            let found = late(signal, flow);
            assert!(found > 0.88 * reference, "{flow}, {signal}: {found} for {reference}");
        }
    }
}

/// A hold that is renewed again and again leaves loss unanswered, but not the link unused.
#[test]
fn satcp_lives_with_endless_announcements() {
    for mode in ["published", "freeze"] {
        let text = format!(
            "[signal]\nsource = \"schedule\"\nperiod = \"0.2 s\"\n\
             [[flow]]\ncc = \"satcp\"\nsatcp.mode = \"{mode}\"\n[[flow]]\ncc = \"cubic\"\n"
        );
        let data = simulate(&fixed(20, 50, 125_000, 30, &text));
        assert!(data.summary.link.utilisation > 0.9, "{mode}: {:?}", data.summary.link);
        assert!(data.summary.flows[1].goodput_bps > 200_000, "{mode}: {:?}", data.summary.flows);
    }
}

#[test]
fn a_schedule_announces_whatever_the_path_does() {
    let signal = "[signal]\nsource = \"schedule\"\nlead = \"1 s\"\n";
    let text = fixed(10, 20, 25_000, 40, &format!("{signal}[[flow]]\n"));
    // The run begins at a full minute of UTC.
    let said: Vec<(f64, f64)> = experiment(&text)
        .announcements
        .iter()
        .map(|a| (a.announced.as_secs_f64(), a.at.as_secs_f64()))
        .collect();
    assert_eq!(said, [(11.0, 12.0), (26.0, 27.0)]);
    assert_eq!(rows(&simulate(&text), EventKind::Announcement).len(), 2);
}
