//! The sender and the receiver against each other over a small simulated path.

mod bbr_phases;
mod bbr_probe_rtt;
mod behaviour_of_modules;
mod bursts;
mod clean_path;
mod cubic_window;
mod duplex_properties;
mod ecn;
mod exchanges;
#[path = "../../../cc/tests/cc/fixed_window.rs"]
mod fixed_window;
mod giving_up;
mod hooks;
mod hystart;
mod loss;
mod nagle;
mod newreno;
mod one_way;
mod oracle;
mod outage;
mod pair;
mod path;
mod properties;
mod prr;
mod rack;
mod receive_window;
mod receiving;
mod reno;
mod reordering;
mod rto_back_off;
mod satcp;
mod satpipe;
mod slow_reader;
mod tail_loss_probe;
mod trouble;
