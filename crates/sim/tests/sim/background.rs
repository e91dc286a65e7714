//! Networks with a background: traffic without packets that shares the links.

use std::collections::BTreeMap;

use skyhop_app::{App, Probe};
use skyhop_experiment::{BackgroundPlan, Experiment, Traffic};
use skyhop_model::Direction;
use skyhop_path::network::Demand;
use skyhop_record::RunData;
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

use crate::constellation::{experiment, ring, run, tcp};

const MBPS: u64 = 1_000_000;
const NEW_YORK: u32 = 6;
const LONDON: u32 = 8;

fn demand(from: u32, to: u32, rate_bps: u64) -> Demand {
    let rate = Rate::from_bits_per_second(rate_bps);
    Demand { from, to, rate, begins: Instant::START, ends: Instant::NEVER }
}

fn with(mut experiment: Experiment, demands: Vec<Demand>, burst: u32) -> Experiment {
    let most = Ratio::new(0.95).unwrap();
    let plan = BackgroundPlan { demands, most, packet: Bytes::new(1514), burst };
    experiment.network.as_mut().unwrap().background = Some(plan);
    experiment
}

/// Network whose satellites stand still, with flows from New York to London.
fn still(duration: Duration, flows: Vec<Traffic>) -> Experiment {
    let pairs = flows.into_iter().map(|traffic| (NEW_YORK, LONDON, traffic)).collect();
    let mut experiment = experiment(duration, pairs);
    experiment.network.as_mut().unwrap().request.every = None;
    experiment
}

fn probe() -> Traffic {
    let probe = Probe { interval: Duration::from_millis(10), size: Bytes::new(100) };
    Traffic::Udp { app: App::Probe(probe) }
}

/// Background bytes of each link and direction, sample by sample.
fn carried(data: &RunData) -> BTreeMap<(String, Direction), Vec<i64>> {
    let mut carried: BTreeMap<_, Vec<i64>> = BTreeMap::new();
    for row in data.link.iter().filter(|row| row.background_bytes > 0) {
        let name = data.begin.links[usize::from(row.link)].clone();
        carried.entry((name, row.direction)).or_default().push(row.background_bytes);
    }
    carried
}

fn mean_rtt_ns(data: &RunData) -> f64 {
    let rtts: Vec<i64> = data.probes.iter().filter_map(|probe| probe.rtt_ns).collect();
    assert!(rtts.len() > 150, "{}", rtts.len());
    rtts.iter().sum::<i64>() as f64 / rtts.len() as f64
}

#[test]
fn a_background_of_nothing_changes_nothing() {
    let plain = run(&experiment(Duration::from_secs(1), ring()), 1);
    let empty = with(experiment(Duration::from_secs(1), ring()), Vec::new(), 1);
    assert!(run(&empty, 1) == plain);
    let zero = with(experiment(Duration::from_secs(1), ring()), vec![demand(0, 1, 0)], 1);
    assert!(run(&zero, 1) == plain);
    assert!(plain.link.iter().all(|row| row.background_bytes == 0));
}

#[test]
fn a_flow_gets_what_the_background_leaves() {
    let alone = run(&still(Duration::from_secs(10), vec![tcp("cubic")]), 1);
    let demands = vec![demand(NEW_YORK, LONDON, 5 * MBPS)];
    for burst in [0, 1] {
        let shared =
            with(still(Duration::from_secs(10), vec![tcp("cubic")]), demands.clone(), burst);
        let data = run(&shared, 1);
        let goodput = |data: &RunData| data.summary.flows[0].goodput_bps as f64 / 1e6;
        assert!(goodput(&alone) > 8.5, "{}", goodput(&alone));
        let rest = goodput(&data) / goodput(&alone);
        assert!((0.45..0.55).contains(&rest), "{} of {}", goodput(&data), goodput(&alone));
        let used: Vec<f64> = data
            .summary
            .links
            .values()
            .map(|link| link.utilisation.max(link.utilisation_back))
            .collect();
        let highest = used.iter().copied().fold(0.0, f64::max);
        assert!((0.98..1.0005).contains(&highest), "{used:?}");
        assert_eq!(data.summary.warnings, Vec::<String>::new());
    }
}

#[test]
fn links_carry_exactly_the_load_over_time() {
    let data = run(
        &with(
            still(Duration::from_secs(2), vec![probe()]),
            vec![demand(NEW_YORK, LONDON, 4 * MBPS), demand(LONDON, NEW_YORK, MBPS)],
            0,
        ),
        1,
    );
    let carried = carried(&data);
    let name = |site: &str| (format!("{site} - satellites"), Direction::Forward);
    // 4 Mbit/s are 50,000 bytes in 100 ms.
    assert_eq!(carried[&name("New York")], vec![50_000; 20]);
    assert_eq!(carried[&name("London")], vec![12_500; 20]);
    let [there, back] = [50_000, 12_500]
        .map(|bytes| carried.values().filter(|of_link| **of_link == vec![bytes; 20]).count());
    assert_eq!(there + back, carried.len(), "{carried:?}");
    // Both directions go over the same satellites.
    assert!(there == back && there >= 4, "{there} {back}");
    let used = &data.summary.links["New York - satellites"];
    assert!((0.4..0.42).contains(&used.utilisation), "{}", used.utilisation);
}

#[test]
fn packets_wait_for_bursts_and_not_for_an_even_load() {
    let alone = mean_rtt_ns(&run(&still(Duration::from_secs(4), vec![probe()]), 1));
    let demands = vec![demand(NEW_YORK, LONDON, 8 * MBPS)];
    let of = |burst| with(still(Duration::from_secs(4), vec![probe()]), demands.clone(), burst);
    let data = run(&of(1), 1);
    let legs = carried(&data).len() as f64;
    // On each link the mean wait of M/D/1 at a load of 0.8: twice the time of a packet.
    let expected_ns = legs * 2.0 * 1514.0 * 8.0 * 100.0;
    let waits_ns = mean_rtt_ns(&data) - alone;
    assert!((waits_ns / expected_ns - 1.0).abs() < 0.15, "{waits_ns} of {expected_ns}");
    // An even load leaves less than a packet's time in the way of small packets.
    let waits_ns = mean_rtt_ns(&run(&of(0), 1)) - alone;
    assert!((0.0..50_000.0).contains(&waits_ns), "{waits_ns}");
}

#[test]
fn the_number_of_threads_and_of_flows_in_front_changes_no_load() {
    let demands: Vec<Demand> =
        (0..10).map(|site| demand(site, (site + 3) % 10, 6 * MBPS)).collect();
    let shared = with(experiment(Duration::from_secs(2), ring()), demands.clone(), 1);
    let data = run(&shared, 1);
    for threads in [2, 4] {
        assert!(run(&shared, threads) == data, "with {threads} threads");
    }
    // Full queues lose some of a background. Next to probes alone nothing is lost: what goes up comes down.
    let probes = ring().into_iter().filter(|flow| matches!(flow.2, Traffic::Udp { .. })).collect();
    let data = run(&with(experiment(Duration::from_secs(2), probes), demands, 0), 1);
    let mut sums: BTreeMap<i64, [i64; 2]> = BTreeMap::new();
    for row in &data.link {
        let name = &data.begin.links[usize::from(row.link)];
        let [up, down] = sums.entry(row.t_ns).or_default();
        *up += if name.ends_with("- satellites") { row.background_bytes } else { 0 };
        *down += if name.ends_with("- sites") { row.background_bytes } else { 0 };
    }
    assert_eq!(sums.len(), 20);
    for (at, [up, down]) in sums {
        // Each device counts whole bytes.
        assert!(up > 500_000 && (up - down).abs() < 20, "at {at}: {up} up, {down} down");
    }
}

#[test]
fn a_warning_says_what_the_network_does_not_carry() {
    let data = run(
        &with(
            still(Duration::from_secs(1), vec![probe()]),
            vec![demand(NEW_YORK, LONDON, 19 * MBPS)],
            0,
        ),
        1,
    );
    let expected = "the network carries 50.0 % of its background: 0.0 % have no route, and 50.0 % exceed the share \
                    network.background.most of a link";
    assert_eq!(data.summary.warnings, [expected]);
    let up = &carried(&data)[&("New York - satellites".to_owned(), Direction::Forward)];
    // 95 % of 10 Mbit/s.
    assert_eq!(*up, vec![118_750; 10]);
}
