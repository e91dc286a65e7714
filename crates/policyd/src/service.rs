//! A policy as a service of this machine: whoever chooses its name is decided for.

use std::path::Path;
use std::thread;
use std::time::Duration;

use skyhop_ccfile::LoadedPolicy;
use skyhop_host::ServiceControl;
use skyhop_host::error::HostError;

use crate::pilots::Served;
use crate::server::hold_policy;

/// How often the caller is asked whether to go on.
const LOOK: Duration = Duration::from_millis(100);

/// What a card is called in the kernel where nobody says: as its file, with `_` for what the kernel's names may not have.
pub fn default_name(card: &Path) -> String {
    let stem = card.file_stem().unwrap_or_default().to_string_lossy();
    stem.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "_")
}

/// Registers `cc/policy.c` under `name`, and decides for all connections of this machine that choose it, until the caller
/// interrupts. What ends this process in any other way ends the registration, too (from Linux 6.4 on), and connections that
/// have the name go on with the base algorithm.
///
/// # Errors
/// Those of [`hold_policy`], and what has ended the deciding.
pub fn serve(
    card: &str,
    loaded: &LoadedPolicy,
    name: &str,
    control: &mut dyn ServiceControl,
) -> Result<Served, HostError> {
    let (held, server) = hold_policy(card, &loaded.policy, &loaded.parameters(&[]), Some(name))?;
    let title = &loaded.policy.card.title;
    control.note(&format!(
        "{title}: decides for connections that choose {name}: setsockopt(TCP_CONGESTION, \"{name}\"), \
         iperf3 -C {name}, or ip route add ... congctl {name}; Ctrl-C ends it"
    ));
    while !control.interrupted() && !server.is_over() {
        thread::sleep(LOOK);
    }
    // The name first: nobody shall choose what nobody decides for.
    drop(held);
    let served = server.join()?;
    match served.failure {
        None => Ok(served),
        Some(reason) => Err(HostError::System {
            action: format!(
                "{title} decided no more, after {} decisions for {} connections",
                served.outputs.decisions, served.connections
            ),
            reason,
        }),
    }
}
