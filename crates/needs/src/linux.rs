//! What the Linux stack did: tests/linux, whose README says how it was asked.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

const LINUX_OWN: [&str; 5] = ["reno", "cubic", "bbr", "hybla", "vegas"];
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

/// A full packet with its Ethernet header.
const PACKET_BYTES: u64 = 1514;

impl Scenario {
    /// With the terms of a link that sends one packet after the other. The token bucket lets the first packet of an idle
    /// link pass at once, and has the one that it waits for in its FIFO still.
    fn with_our_link(mut self) -> Self {
        self.one_way_us -= PACKET_BYTES * 8000 / self.rate_kbps / 2;
        if self.aqm.is_none() {
            self.queue_bytes -= PACKET_BYTES;
        }
        self
    }

    /// Whether its congestion controls are the kernel's own: of others what we have is a reading of our own.
    pub fn is_linux_own(&self) -> bool {
        self.flows.iter().all(|flow| LINUX_OWN.contains(&flow.cc.as_str()))
    }
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
    let named = |(name, scenario)| Scenario { name, ..scenario };
    summary.into_iter().map(named).map(Scenario::with_our_link).collect()
}

/// How many segments a scenario's flow sent again in each tenth of a second after its connection was there.
pub fn retransmits(name: &str, flow: usize) -> Vec<u32> {
    let series = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/linux/series");
    let text = fs::read_to_string(series.join(format!("{name}.flow{flow}.csv")));
    let text = text.expect("every flow of the summary has a series");
    let last = |line: &str| line.rsplit(',').next().and_then(|last| last.parse().ok());
    text.lines().skip(1).map(|line| last(line).unwrap_or(0)).collect()
}
