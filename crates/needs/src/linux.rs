//! What the Linux stack did: tests/linux, whose README says how it was asked.

use std::collections::BTreeMap;

use serde::Deserialize;

const SUMMARY: &str = include_str!("../../../tests/linux/summary.json");

/// Terms of a run and what came of it.
#[derive(Debug, Deserialize)]
#[expect(missing_docs, reason = "names with units say what fields are")]
pub struct Scenario {
    #[serde(skip)]
    pub name: String,
    /// With Ethernet headers.
    pub rate_kbps: u64,
    pub queue_bytes: u64,
    pub one_way_us: u64,
    /// Of packets to the server.
    #[serde(default)]
    pub loss_percent: f64,
    /// tc's arguments for a queue other than the FIFO.
    pub aqm: Option<String>,
    /// A command ahead of the run, such as setting a module's parameter.
    pub before: Option<String>,
    /// In the order of their starts.
    pub flows: Vec<Flow>,
}

/// What one flow came to.
#[derive(Debug, Deserialize)]
#[expect(missing_docs, reason = "names with units say what fields are")]
pub struct Flow {
    pub cc: String,
    pub start_s: f64,
    pub seconds: f64,
    /// At the receiver.
    pub goodput_bps: f64,
    pub retransmits: f64,
    pub srtt_mean_us: f64,
    pub cwnd_mean_packets: f64,
}

/// Every scenario, by name.
pub fn scenarios() -> Vec<Scenario> {
    let summary: BTreeMap<String, Scenario> =
        serde_json::from_str(SUMMARY).expect("tests/linux/summary.json holds scenarios");
    summary.into_iter().map(|(name, scenario)| Scenario { name, ..scenario }).collect()
}
