//! Tests that the order of the flows in the file does not change their results.

use std::ops::ControlFlow;

use proptest::prelude::*;
use skyhop_record::{FlowSummary, ProbeSummary, RunData};
use skyhop_scenario::parse_scenario;
use skyhop_sim::Simulator;

/// Flows of which no two are alike, so that each can be identified; some start at the same time.
const FLOWS: [&str; 6] = [
    "cc = \"cubic\"\n",
    "cc = \"bbr\"\n",
    "cc = \"bbr\"\nstart = \"500 ms\"\n",
    "cc = \"reno\"\nfrom = \"to\"\n",
    "cc = \"cubic\"\nbytes = \"1 MB\"\n",
    "kind = \"probe\"\ninterval = \"7 ms\"\n",
];

fn simulate(order: &[usize]) -> RunData {
    let path = "[path]\nkind = \"fixed\"\nrtt = \"30 ms\"\n\
                [link]\nrate = \"20 Mbit/s\"\nqueue = \"40 packets\"\nloss = \"0.1 %\"\n\
                [run]\nduration = \"8 s\"\n";
    let flows = order.iter().map(|place| format!("[[flow]]\n{}", FLOWS[*place]));
    let text = format!("{path}{}", flows.collect::<String>());
    let no_places = |name: &str| Err(format!("no place {name}"));
    let experiment = parse_scenario(&text, "order.toml", &[])
        .unwrap()
        .experiment(&no_places, &mut |_, _| ControlFlow::Continue(()))
        .unwrap();
    skyhop_engine::run_in_memory(&Simulator, &experiment).unwrap()
}

/// Results of all flows, each at its index in `FLOWS`.
fn by_flow(order: &[usize]) -> (Vec<FlowSummary>, Vec<ProbeSummary>) {
    let data = simulate(order);
    let place = |id: u32| order[id as usize] as u32;
    let mut flows = data.summary.flows;
    flows.iter_mut().for_each(|flow| flow.id = place(flow.id));
    flows.sort_by_key(|flow| flow.id);
    let mut probes = data.summary.probes;
    probes.iter_mut().for_each(|probe| probe.id = place(probe.id));
    (flows, probes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: skyhop_needs::cases(12), ..ProptestConfig::default() })]

    #[test]
    fn any_order_gives_each_flow_the_same(
        order in Just((0..FLOWS.len()).collect::<Vec<_>>()).prop_shuffle()
    ) {
        let in_order: Vec<usize> = (0..FLOWS.len()).collect();
        prop_assert_eq!(by_flow(&order), by_flow(&in_order));
    }
}

#[test]
fn equal_flows_are_interchangeable() {
    let goodputs = |order: &[usize]| {
        let mut goodputs: Vec<u64> =
            simulate(order).summary.flows.iter().map(|flow| flow.goodput_bps).collect();
        goodputs.sort_unstable();
        goodputs
    };
    assert_eq!(goodputs(&[1, 0, 1]), goodputs(&[0, 1, 1]));
}
