//! Tests of several links: chains, shared links, delays of a flow's own, route changes.

use skyhop_model::{Direction, EventKind, LossReason};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use skyhop_experiment::Experiment;
use skyhop_record::RunData;
use skyhop_scenario::{ScenarioError, parse_scenario};
use skyhop_sim::Simulator;

fn experiment(text: &str) -> Result<Experiment, ScenarioError> {
    let no_places = |name: &str| Err(format!("no place {name}"));
    parse_scenario(text, "x.toml", &[])?
        .experiment(&no_places, &mut |_, _| ControlFlow::Continue(()))
}

fn simulate(text: &str) -> RunData {
    let experiment = experiment(text).unwrap();
    skyhop_engine::run_in_memory(&Simulator, &experiment).unwrap()
}

/// Scenario with a path of 10 ms at 100 Mbit/s, and further tables.
fn with_path(rest: &str) -> String {
    format!(
        "[path]\nkind = \"fixed\"\nrtt = \"10 ms\"\n[link]\nrate = \"100 Mbit/s\"\n\
         [run]\nduration = \"20 s\"\n{rest}"
    )
}

const CHAIN: &str = "[links.second]\nrtt = \"20 ms\"\nrate = \"20 Mbit/s\"\n";

fn delivered(data: &RunData, link: u16, direction: Direction) -> i64 {
    let own = data.link.iter().filter(|row| row.link == link && row.direction == direction);
    own.map(|row| row.delivered_bytes).sum()
}

#[test]
fn a_chain_adds_up_delays_and_its_slowest_link_bounds_the_goodput() {
    let data = simulate(&with_path(&format!(
        "{CHAIN}[[flow]]\nvia = [\"path\", \"second\"]\n\
         [[flow]]\nkind = \"probe\"\nvia = [\"path\", \"second\"]\nstop = \"10 ms\"\n"
    )));
    let flow = &data.summary.flows[0];
    assert_eq!(flow.base_rtt_mean_us, 30_000);
    let most_bps = 20e6 * 1448.0 / 1514.0;
    assert!((0.9 * most_bps..1.001 * most_bps).contains(&(flow.goodput_bps as f64)), "{flow:?}");
    let probe_us = data.summary.probes[0].rtt_p50_us.unwrap();
    assert!((30_000..30_200).contains(&probe_us), "{probe_us}");
    assert!(data.summary.links["second"].utilisation > 0.9);
    assert!(data.summary.link.utilisation < 0.25);
    assert_eq!(data.begin.links, ["path", "second"]);
}

#[test]
fn the_other_end_crosses_a_chain_backwards() {
    let data = simulate(&with_path(&format!(
        "{CHAIN}[[flow]]\nfrom = \"to\"\nvia = [\"path\", \"second\"]\n"
    )));
    for link in [0, 1] {
        let (there, back) =
            (delivered(&data, link, Direction::Forward), delivered(&data, link, Direction::Back));
        assert!(back > 10 * there, "link {link}: {there} B there, {back} B back");
    }
    // The first link in its direction is the slow one, so the other never has a queue.
    assert!(
        data.summary.links["second"].drops[LossReason::Queue]
            + data.summary.link.drops[LossReason::Queue]
            > 0
    );
    assert_eq!(data.summary.link.drops[LossReason::Queue], 0);
}

#[test]
fn in_a_parking_lot_the_long_flow_gets_less_than_each_short_one() {
    let data = simulate(
        "[path]\nkind = \"fixed\"\nrtt = \"20 ms\"\n[link]\nrate = \"20 Mbit/s\"\n\
         [links.second]\nrtt = \"20 ms\"\nrate = \"20 Mbit/s\"\n\
         [links.third]\nrtt = \"20 ms\"\nrate = \"20 Mbit/s\"\n[run]\nduration = \"60 s\"\n\
         [[flow]]\ncc = \"reno\"\nvia = [\"path\", \"second\", \"third\"]\n\
         [[flow]]\ncc = \"reno\"\nextra_rtt = \"40 ms\"\n\
         [[flow]]\ncc = \"reno\"\nextra_rtt = \"40 ms\"\nvia = [\"second\"]\n\
         [[flow]]\ncc = \"reno\"\nextra_rtt = \"40 ms\"\nvia = [\"third\"]\n",
    );
    let flows = &data.summary.flows;
    assert!(flows.iter().all(|flow| flow.base_rtt_mean_us == 60_000), "{flows:?}");
    for short in &flows[1..] {
        assert!(flows[0].goodput_bps < short.goodput_bps, "{flows:?}");
        let both = flows[0].goodput_bps + short.goodput_bps;
        assert!((17_000_000..20_000_000).contains(&both), "{flows:?}");
    }
    assert!(flows[0].goodput_bps > 1_000_000, "{flows:?}");
}

#[test]
fn a_delay_of_its_own_lengthens_only_that_flow() {
    let data = simulate(&with_path(
        "[[flow]]\nkind = \"probe\"\n[[flow]]\nkind = \"probe\"\nextra_rtt = \"35 ms\"\n",
    ));
    let p50_us: Vec<u64> = data.summary.probes.iter().map(|p| p.rtt_p50_us.unwrap()).collect();
    assert!((10_000..10_100).contains(&p50_us[0]), "{p50_us:?}");
    assert!((45_000..45_100).contains(&p50_us[1]), "{p50_us:?}");
}

#[test]
fn the_nearer_flow_gets_more_of_a_shared_link() {
    let data = simulate(&with_path(
        "[[flow]]\ncc = \"reno\"\nstop = \"20 s\"\n[[flow]]\ncc = \"reno\"\nextra_rtt = \"90 ms\"\n",
    ));
    let flows = &data.summary.flows;
    assert!(flows[0].goodput_bps > 2 * flows[1].goodput_bps, "{flows:?}");
}

#[test]
fn acknowledgements_wait_in_the_queue_of_the_other_direction() {
    let text = |cross: &str| {
        format!(
            "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n[link]\nrate = \"50 Mbit/s\"\n\
             [link.back]\nrate = \"5 Mbit/s\"\nqueue = \"100 ms\"\n[run]\nduration = \"20 s\"\n\
             [[flow]]\n{cross}"
        )
    };
    let alone = simulate(&text(""));
    let crossed = simulate(&text("[[flow]]\nfrom = \"to\"\n"));
    let (before, after) = (&alone.summary.flows[0], &crossed.summary.flows[0]);
    let (before_us, after_us) = (before.srtt_mean_us.unwrap(), after.srtt_mean_us.unwrap());
    assert!(after_us > before_us + 20_000, "{before_us} us alone, {after_us} us against a flow");
    assert!(after.goodput_bps < before.goodput_bps);
}

#[test]
fn a_flow_takes_another_way_and_what_flies_arrives_on_the_old_one() {
    let data = simulate(&with_path(&format!(
        "{CHAIN}[[change]]\nat = \"5 s\"\nflow = 0\nvia = [\"second\"]\n\
         [[flow]]\nkind = \"probe\"\n[[flow]]\n"
    )));
    assert_eq!(data.summary.probes[0].lost, 0);
    let rtt_us = |from_ns: i64, to_ns: i64| -> Vec<i64> {
        let rows = data.probes.iter().filter(|row| (from_ns..to_ns).contains(&row.t_ns));
        rows.map(|row| row.rtt_ns.unwrap() / 1000).collect()
    };
    // Only the old route has the queue of the other flow.
    assert!(rtt_us(5_000_000_000, i64::MAX).iter().all(|rtt| (20_000..20_200).contains(rtt)));
    assert!(rtt_us(3_000_000_000, 4_980_000_000).iter().all(|rtt| *rtt >= 10_000));
    let change = data.events.iter().find(|row| row.kind == EventKind::Change).unwrap();
    assert_eq!((change.t_ns, change.flow), (5_000_000_000, Some(0)));
}

#[test]
fn a_change_reaches_the_link_that_it_names() {
    let data = simulate(&with_path(&format!(
        "{CHAIN}[[change]]\nat = \"5 s\"\nlink = \"second\"\noutage = \"1 s\"\nrtt = \"60 ms\"\n\
         [[flow]]\nkind = \"probe\"\nvia = [\"second\"]\n[[flow]]\nkind = \"probe\"\n"
    )));
    assert!((95..=105).contains(&data.summary.probes[0].lost), "{:?}", data.summary.probes);
    assert_eq!(data.summary.probes[1].lost, 0);
    assert_eq!(data.summary.links["second"].drops[LossReason::Outage], data.summary.probes[0].lost);
    let last_ns = data.probes.iter().rfind(|row| row.probe == 0).unwrap().rtt_ns.unwrap();
    assert!((60_000_000..60_200_000).contains(&last_ns), "{last_ns}");
    assert!(data.events.iter().any(|row| row.kind == EventKind::Change && row.link == 1));
}

#[test]
fn the_order_of_flows_in_the_file_changes_nothing() {
    let flows = [
        "[[flow]]\ncc = \"cubic\"\n",
        "[[flow]]\ncc = \"bbr\"\n",
        "[[flow]]\ncc = \"bbr\"\nvia = [\"second\"]\n",
        "[[flow]]\ncc = \"reno\"\nfrom = \"to\"\nvia = [\"path\", \"second\"]\n",
    ];
    let run = |order: [usize; 4]| {
        let listed: String = order.iter().map(|index| flows[*index]).collect();
        let data = simulate(&with_path(&format!("{CHAIN}{listed}")));
        let mut by_flow = vec![None; 4];
        for (place, index) in order.into_iter().enumerate() {
            let summary = &data.summary.flows[place];
            by_flow[index] = Some((summary.goodput_bps, summary.retransmits, summary.sent_packets));
        }
        by_flow
    };
    let first = run([0, 1, 2, 3]);
    assert_eq!(first, run([3, 2, 1, 0]));
    assert_eq!(first, run([1, 3, 0, 2]));
}

#[test]
fn wrong_topologies_are_named() {
    for (rest, expected) in [
        ("[[flow]]\nvia = [\"x\"]\n", "x.toml: flow.0.via: there is no link \"x\"; there are path"),
        ("[[flow]]\nvia = []\n", "x.toml: flow.0.via: crosses no link"),
        (
            "[[flow]]\nvia = [\"path\", \"path\"]\n",
            "x.toml: flow.0.via: crosses no link, or one twice",
        ),
        ("[links.path]\n[[flow]]\n", "x.toml: links.path: is the name of the link that"),
        ("[links.a]\nrate = \"0 Mbit/s\"\n[[flow]]\n", "x.toml: links.a.rate: is 0"),
        (
            "[links.a]\nrtt = \"1 ms\"\npath = { kind = \"fixed\", rtt = \"2 ms\" }\n",
            "links.a: has both",
        ),
        ("[links.a]\npath = { kind = \"fixed\" }\n", "x.toml: links.a.path.rtt: is missing"),
        (
            "[links.a]\npath = { from = \"Oz\", to = \"Oz\" }\n[[flow]]\n",
            "links.a.path.from: no place",
        ),
        ("[links.a]\nqueue = \"3 B\"\n[[flow]]\n", "x.toml: links.a.queue: "),
        ("[links.a]\nqdisc = \"red?\"\n[[flow]]\n", "x.toml: links.a.qdisc: "),
        (
            "[[change]]\nat = \"1 s\"\nlink = \"b\"\nrtt = \"9 ms\"\n",
            "change.0.link: there is no link",
        ),
        ("[[change]]\nat = \"1 s\"\nflow = 1\nvia = [\"path\"]\n[[flow]]\n", "change.0.flow: is 1"),
        ("[[change]]\nat = \"1 s\"\nflow = 0\n[[flow]]\n", "x.toml: change.0.via: is missing"),
        (
            "[[change]]\nat = \"1 s\"\nvia = [\"path\"]\n[[flow]]\n",
            "x.toml: change.0.flow: is missing",
        ),
    ] {
        let error = experiment(&with_path(rest)).unwrap_err().to_string();
        assert!(error.contains(expected), "{rest}: {error}");
    }
}

/// Download over a geostationary satellite, 20 Mbit/s, whose ACKs have capacity on demand if `dama`.
fn over_geo(dama: bool) -> String {
    let back = if dama { "[link.back]\ndama = {}\n" } else { "" };
    format!(
        "[path]\nkind = \"fixed\"\nrtt = \"600 ms\"\n[link]\nrate = \"20 Mbit/s\"\nqueue = \"2 BDP\"\n{back}\
         [run]\nduration = \"60 s\"\nsample = \"20 ms\"\n[[flow]]\ncc = \"bbr\"\nbytes = \"20 MB\"\n"
    )
}

#[test]
fn acks_that_ask_for_their_capacity_slow_the_start_and_not_what_follows() {
    let [plain, asking] = [false, true].map(|dama| simulate(&over_geo(dama)));
    let seconds = |data: &RunData| data.summary.flows[0].completion_s.expect("it completes");
    assert!(seconds(&asking) > seconds(&plain) + 2.0, "{} s", seconds(&asking));
    // The ACKs come on the grid of frames, so that every second sample has none.
    let back = asking.link.iter().filter(|row| row.direction == Direction::Back);
    let with_acks = back.filter(|row| row.delivered_bytes > 0);
    let places: BTreeSet<i64> = with_acks.map(|row| row.t_ns / 20_000_000 % 2).collect();
    assert_eq!(places.len(), 1);
    // From the third second on, at the rate of the link.
    let second = |data: &RunData, from: i64| {
        let rows = data.link.iter().filter(|row| row.direction == Direction::Forward);
        let of = rows.filter(|row| (from..from + 1_000_000_000).contains(&row.t_ns));
        of.map(|row| row.delivered_bytes).sum::<i64>()
    };
    let last = (seconds(&asking) * 1e9) as i64 - 2_000_000_000;
    assert!(second(&asking, last) > 2_300_000, "{} B", second(&asking, last));
}
