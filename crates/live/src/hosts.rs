//! TCP settings of the run's two hosts, as far as the kernel allows them per network namespace.

use skyhop_app::TcpOptions;
use skyhop_engine::Unsupported;
use skyhop_experiment::Experiment;
use skyhop_host::device::NAME;
use skyhop_host::error::Context;
use skyhop_host::namespace::{NetNamespace, TcpSettings};
use skyhop_host::{HostError, PeerRoute};
use skyhop_kernel::ticks_per_second;
use skyhop_model::End;
use skyhop_units::Bytes;

use crate::traffic::Addresses;

/// Largest buffer size: the kernel stores it in an int.
const MOST_BUFFER: Bytes = Bytes::new(i32::MAX as u64);

/// TCP options of both hosts: the options common to all flows, or those of `[tcp]` where a program
/// generates the traffic.
///
/// # Errors
/// Flows differ in an option that applies to a whole namespace, or the kernel does not accept the value.
pub(crate) fn options(
    experiment: &Experiment,
    with_program: bool,
) -> Result<TcpOptions, Unsupported> {
    let flows = experiment.flows.iter().filter(|_| !with_program);
    let flows = flows.filter_map(|flow| Some((flow.id, flow.tcp_options()?)));
    let mut first = None;
    for (id, options) in flows {
        let (first_id, shared) = *first.get_or_insert((id, options));
        if let Some(key) = differing(options, shared) {
            let what = format!(
                "it differs from flow {first_id}'s, but the flows of a live run share two hosts; set it once for all, under [tcp]"
            );
            return Err(Unsupported::new(format!("flow {id}: tcp.{key}"), what));
        }
    }
    let options = first.map_or(experiment.tcp, |(_, options)| *options);
    for (key, sizes) in [("rmem", options.rmem), ("wmem", options.wmem)] {
        if sizes.max > MOST_BUFFER {
            let what = format!("it is {}; Linux takes at most {MOST_BUFFER}", sizes.max);
            return Err(Unsupported::new(format!("tcp.{key}.max"), what));
        }
    }
    Ok(options)
}

/// First key in which two flows differ, of the keys that apply to a whole namespace; `None` if they agree.
fn differing(one: &TcpOptions, other: &TcpOptions) -> Option<&'static str> {
    [
        ("initial_cwnd", one.initial_cwnd == other.initial_cwnd),
        ("rmem", one.rmem == other.rmem),
        ("wmem", one.wmem == other.wmem),
        ("timestamps", one.timestamps == other.timestamps),
        ("sack", one.sack == other.sack),
    ]
    .into_iter()
    .find_map(|(key, same)| (!same).then_some(key))
}

/// Settings of the network namespaces.
pub(crate) fn settings(options: &TcpOptions, with_program: bool) -> TcpSettings {
    TcpSettings {
        rmem: options.rmem,
        wmem: options.wmem,
        timestamps: options.timestamps,
        sack: options.sack,
        // skyhop's own flows request ECN per connection.
        ecn: with_program && options.ecn,
    }
}

/// Route from an end to the other end's address.
pub(crate) fn route(end: End, addresses: Addresses, options: &TcpOptions) -> PeerRoute<'static> {
    let usual = TcpOptions::default().initial_cwnd;
    PeerRoute {
        peer: addresses.of(end.other()),
        device: NAME,
        source: addresses.of(end),
        initial_cwnd: Some(options.initial_cwnd).filter(|packets| *packets != usual),
        cc: None,
    }
}

/// Set the initial congestion window of an end's connections, if it is not the kernel's default.
pub(crate) fn set_initial_cwnd(
    namespace: &NetNamespace,
    end: End,
    options: &TcpOptions,
) -> Result<(), HostError> {
    let routes = [Addresses::Path, Addresses::Elsewhere].map(|one| route(end, one, options));
    if routes[0].initial_cwnd.is_none() {
        return Ok(());
    }
    namespace.inside(|| {
        let set = |route: PeerRoute<'_>| route.set().context("cannot set tcp.initial_cwnd");
        routes.into_iter().try_for_each(set)
    })
}

/// Warning about `[tcp]` keys whose values differ from the running kernel's behaviour, which a live
/// run cannot change. `release` is the kernel's release.
pub(crate) fn kernel_option_warning<'o>(
    requested: impl Iterator<Item = &'o TcpOptions>,
    release: &str,
) -> Result<Option<String>, HostError> {
    let hz = ticks_per_second().context("cannot learn the kernel's ticks per second")?;
    let (mut keys, usual) = (Vec::new(), TcpOptions::default());
    for options in requested {
        let profile = options.profile;
        if profile != usual.profile && !is_release(profile.name(), release) {
            keys.push(format!("profile = \"{profile}\""));
        }
        if options.hz != usual.hz && options.hz != hz {
            keys.push(format!("hz = {}", options.hz));
        }
        if !options.timer_wheel {
            keys.push("timer_wheel = false".to_owned());
        }
    }
    keys.sort();
    keys.dedup();
    Ok((!keys.is_empty()).then(|| {
        format!(
            "[tcp] {} has no effect in a live run: this is Linux {release} with {hz} ticks per second and its timer wheel",
            keys.join(", ")
        )
    }))
}

/// Whether a profile describes this kernel release, as "linux-6.18" does "6.18.44".
fn is_release(profile: &str, release: &str) -> bool {
    let version = profile.trim_start_matches("linux-");
    let rest = release.strip_prefix(version);
    rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use skyhop_model::Profile;

    use super::*;

    #[test]
    fn options_of_another_kernel_give_one_warning() {
        let hz = ticks_per_second().unwrap();
        let told =
            |options: &[TcpOptions]| kernel_option_warning(options.iter(), "6.12.30-x").unwrap();
        let usual = TcpOptions::default();
        let as_here = TcpOptions { profile: Profile::Linux6_12, hz, ..usual };
        assert_eq!(told(&[usual, as_here]), None);
        let other = TcpOptions { profile: Profile::Linux5_4, timer_wheel: false, ..usual };
        let expected = format!(
            "[tcp] profile = \"linux-5.4\", timer_wheel = false has no effect in a live run: this is Linux 6.12.30-x with {hz} \
             ticks per second and its timer wheel"
        );
        assert_eq!(told(&[other, usual, other]), Some(expected));
    }

    #[test]
    fn profiles_are_recognised_by_the_whole_number() {
        assert!(is_release("linux-6.1", "6.1.0") && is_release("linux-6.1", "6.1"));
        assert!(!is_release("linux-6.1", "6.18.44") && !is_release("linux-5.4", "6.5.4"));
    }
}
