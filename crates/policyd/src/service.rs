//! Policy as a service of this machine: decides for all connections that choose its name.

use std::path::Path;
use std::thread;
use std::time::Duration;

use skyhop_ccfile::LoadedPolicy;
use skyhop_host::ServiceControl;
use skyhop_host::error::HostError;

use crate::connections::DecisionSummary;
use crate::server::register_policy;

/// Time between two checks whether the caller wants the service to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Default name of a card's congestion control in the kernel: the name of its file without the suffix, with `_` for
/// characters that the kernel does not allow.
pub fn default_name(card: &Path) -> String {
    let stem = card.file_stem().unwrap_or_default().to_string_lossy();
    stem.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "_")
}

/// Register `cc/policy.c` under `name` and decide for all connections of this machine that choose it, until the caller
/// interrupts.
///
/// If the process ends in another way, the kernel drops the registration too (since Linux 6.4), and connections that
/// use the name continue with the base algorithm.
///
/// # Errors
/// The errors of [`register_policy`], and an error that ends the server's thread.
pub fn serve(
    card: &str,
    loaded: &LoadedPolicy,
    name: &str,
    control: &mut dyn ServiceControl,
) -> Result<DecisionSummary, HostError> {
    let (registration, server) =
        register_policy(card, &loaded.policy, &loaded.parameters(&[]), Some(name))?;
    let title = &loaded.policy.card.title;
    control.note(&format!(
        "{title}: decides for connections that choose {name}: setsockopt(TCP_CONGESTION, \"{name}\"), \
         iperf3 -C {name}, or ip route add ... congctl {name}; Ctrl-C ends it"
    ));
    while !control.interrupted() && !server.is_over() {
        thread::sleep(POLL_INTERVAL);
    }
    // Unregister the name first, so that no new connection chooses it after the server has stopped.
    drop(registration);
    let served = server.join()?;
    match served.failure {
        None => Ok(served),
        Some(reason) => Err(HostError::System {
            action: format!(
                "{title} stopped deciding after {} decisions for {} connections",
                served.outputs.decisions, served.connections
            ),
            reason,
        }),
    }
}
