//! Properties that hold for every scenario: no panic, no stall, monotonic time, correct counts.
//!
//! Each link checks after each packet that every packet is inside, has arrived or is counted as
//! dropped (`Link::is_conserved`), as these tests are built with debug assertions.

use skyhop_model::{Direction, EventKind};
use std::fmt::Write as _;
use std::ops::ControlFlow;

use proptest::prelude::*;
use skyhop_record::RunData;
use skyhop_scenario::parse_scenario;
use skyhop_sim::Simulator;

/// Time from which the path is left alone, so that all flows that can recover do so.
const QUIET_FROM_MS: u64 = 10_000;
const END_MS: u64 = 40_000;

fn simulate(text: &str) -> RunData {
    let no_places = |name: &str| Err(format!("no place {name}"));
    let experiment = parse_scenario(text, "random.toml", &[])
        .unwrap()
        .experiment(&no_places, &mut |_, _| ControlFlow::Continue(()))
        .unwrap();
    skyhop_engine::run_in_memory(&Simulator, &experiment).unwrap()
}

/// Random changing paths, whose queues may be as short as a single packet.
fn paths() -> impl Strategy<Value = String> {
    let queue = prop_oneof![Just(1_u32), 1_u32..5, 1_u32..400];
    let back = prop_oneof![
        Just(String::new()),
        (500_u32..20_000, 1_u32..100, 0_u32..20).prop_map(|(kbit, packets, permille)| format!(
            "[link.back]\nrate = \"{kbit} kbit/s\"\nqueue = \"{packets} packets\"\n\
             loss = \"{} %\"\n",
            f64::from(permille) / 10.0
        )),
    ];
    let changes = prop::collection::vec(change(), 0..5);
    (1_u32..300, 500_u32..20_000, queue, 0_u32..20, any::<bool>(), back, changes).prop_map(
        |(rtt_ms, kbit, packets, permille, hold, back, changes)| {
            let during = if hold { "hold" } else { "drop" };
            let loss = f64::from(permille) / 10.0;
            format!(
                "[path]\nkind = \"fixed\"\nrtt = \"{rtt_ms} ms\"\nduring_outage = \"{during}\"\n\
                 [link]\nrate = \"{kbit} kbit/s\"\nqueue = \"{packets} packets\"\nloss = \"{loss} %\"\n\
                 {back}{}",
                changes.concat()
            )
        },
    )
}

fn change() -> impl Strategy<Value = String> {
    let rtt = prop::option::of(1_u32..300);
    let rate = prop::option::of(500_u32..20_000);
    let loss = prop::option::of(0_u32..30);
    let outage = prop::option::of(1_u32..2_000);
    (0..QUIET_FROM_MS - 2_000, rtt, rate, loss, outage)
        .prop_filter("a change changes something", |(_, rtt, rate, loss, outage)| {
            rtt.is_some() || rate.is_some() || loss.is_some() || outage.is_some()
        })
        .prop_map(|(at_ms, rtt, rate, loss, outage)| {
            let mut text = format!("[[change]]\nat = \"{at_ms} ms\"\n");
            let mut key = |name: &str, value: Option<String>| {
                value.map(|value| writeln!(text, "{name} = \"{value}\"").unwrap())
            };
            key("rtt", rtt.map(|ms| format!("{ms} ms")));
            key("rate", rate.map(|kbit| format!("{kbit} kbit/s")));
            key("loss", loss.map(|permille| format!("{} %", f64::from(permille) / 10.0)));
            key("outage", outage.map(|ms| format!("{ms} ms")));
            text
        })
}

/// Random TCP flow; `size` is its end: a number of bytes or a time.
fn tcp(size: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let ccs: Vec<&str> = skyhop_cc::Module::all().iter().map(skyhop_cc::Module::name).collect();
    let from = prop::sample::select(vec!["from", "to"]);
    (prop::sample::select(ccs), from, 0_u32..8_000, size).prop_map(|(cc, from, start_ms, size)| {
        format!("[[flow]]\ncc = \"{cc}\"\nfrom = \"{from}\"\nstart = \"{start_ms} ms\"\n{size}")
    })
}

fn any_flow() -> impl Strategy<Value = String> {
    let size = prop_oneof![
        2 => Just(String::new()),
        1 => (1_u32..1_000_000).prop_map(|bytes| format!("bytes = \"{bytes} B\"\n")),
        1 => (8_001_u32..40_000).prop_map(|ms| format!("stop = \"{ms} ms\"\n")),
    ];
    let probe = (1_u32..200, 16_u32..1473, 0_u32..3_000).prop_map(|(interval, size, start)| {
        format!(
            "[[flow]]\nkind = \"probe\"\ninterval = \"{interval} ms\"\nsize = \"{size} B\"\n\
             start = \"{start} ms\"\n"
        )
    });
    prop_oneof![4 => tcp(size), 1 => probe]
}

fn scenario(path: &str, flows: &[String], seed: u64) -> String {
    let run = format!("[run]\nduration = \"{END_MS} ms\"\nseed = {seed}\n");
    format!("{path}{run}{}", flows.concat())
}

/// Check that rows are in order of time, and that no packet arrives before it was sent.
fn time_runs_forward(data: &RunData) {
    assert!(data.flows.is_sorted_by_key(|row| row.t_ns));
    assert!(data.link.is_sorted_by_key(|row| row.t_ns));
    assert!(data.events.is_sorted_by_key(|row| row.t_ns));
    // Every path here has an RTT of at least 1 ms.
    assert!(data.flows.iter().all(|row| row.srtt_us.is_none_or(|srtt_us| srtt_us >= 999)));
    assert!(data.probes.iter().all(|row| row.rtt_ns.is_none_or(|rtt_ns| rtt_ns >= 1_000_000)));
}

/// Check that every flow that has not ended has delivered data since the path was left alone, or has lost packets in
/// the attempt: a queue of one packet may starve a flow, but not silence it.
fn nothing_stalls(data: &RunData) {
    let quiet_ns = 1_000_000 * QUIET_FROM_MS as i64;
    for flow in &data.summary.flows {
        let ended = flow.completion_s.is_some() || flow.stop_s < END_MS as f64 / 1e3;
        let of_flow = |id: i32| id == flow.id as i32;
        let arrived = data
            .flows
            .iter()
            .any(|row| of_flow(row.flow) && row.t_ns > quiet_ns && row.goodput_bps > 0);
        let lost = data.events.iter().any(|row| {
            row.kind == EventKind::Loss && row.flow.is_some_and(of_flow) && row.t_ns > quiet_ns
        });
        assert!(ended || arrived || lost, "flow {} is silent", flow.id);
        assert!(flow.sent_packets >= flow.retransmits);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: skyhop_needs::cases(60), ..ProptestConfig::default() })]

    #[test]
    fn any_scenario_runs_to_its_end(
        path in paths(),
        flows in prop::collection::vec(any_flow(), 1..5),
        seed in any::<u32>(),
    ) {
        let data = simulate(&scenario(&path, &flows, seed.into()));
        time_runs_forward(&data);
        nothing_stalls(&data);
    }

    /// A transfer of some 40 packets, alone and with half a minute to spare, completes.
    #[test]
    fn a_finite_transfer_completes(
        path in paths(),
        flow in tcp((1_u32..60_000).prop_map(|bytes| format!("bytes = \"{bytes} B\"\n"))),
        seed in any::<u32>(),
    ) {
        let data = simulate(&scenario(&path, &[flow], seed.into()));
        let flow = &data.summary.flows[0];
        prop_assert!(flow.completion_s.is_some(), "{flow:?}");
    }

    /// Conservation once all packets have left the link: bytes delivered = bytes sent - bytes lost. It uses a single
    /// flow with an undisturbed handshake, so that only full segments can be lost.
    #[test]
    fn packets_arrive_or_have_a_row_of_their_loss(
        path in paths(),
        flow in tcp(Just("stop = \"25 s\"\n".to_owned())),
        seed in any::<u32>(),
    ) {
        let undisturbed = path.split("[[change]]").next().unwrap_or(&path);
        let undisturbed = undisturbed.replace("loss =", "# loss =");
        let change = "[[change]]\nat = \"9 s\"\nloss = \"2 %\"\noutage = \"500 ms\"\n";
        let flow = flow.replace("from =", "# from =");
        let data = simulate(&scenario(&format!("{undisturbed}{change}"), &[flow], seed.into()));
        let forward = |direction: Direction| direction == Direction::Forward;
        let rows = data.link.iter().filter(|row| forward(row.direction));
        let delivered: i64 = rows.map(|row| row.delivered_bytes).sum();
        let lost = data.events.iter().filter(|row| {
            row.kind == EventKind::Loss && row.direction.is_some_and(forward)
        });
        let sent = data.summary.flows[0].sent_packets as i64;
        // The handshake is a SYN of 60 bytes and an ACK of 52, each with its Ethernet header.
        let handshake = 60 + 14 + 52 + 14;
        prop_assert_eq!(delivered, 1514 * (sent - lost.count() as i64) + handshake);
    }
}
