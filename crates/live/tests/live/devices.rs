//! Tests of the choice of device, its view from programs, and its error messages.

use skyhop_model::End;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, Uid, fork, geteuid, setgroups, setresgid, setresuid};
use skyhop_engine::Unattended;
use skyhop_host::DeviceKind;
use skyhop_live::LiveOptions;
use skyhop_model::LiveDevice;

use crate::lab;
use crate::lab::{fixed, mbit, ms, program, tcp};

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("skyhop-devices-{}-{name}", std::process::id()))
}

#[test]
fn programs_see_the_loopback_and_one_device_whichever_it_is() {
    for device in lab::devices() {
        let file = scratch("seen");
        let mut experiment = fixed(ms(5), mbit(20), ms(60_000));
        experiment.device = device;
        let list = format!("cat /proc/net/dev > {}", file.display());
        let options = LiveOptions {
            program: Some(program(&["sh", "-c", &list], None)),
            ..LiveOptions::default()
        };
        let Some(outcome) = lab::run_with(&experiment, &options) else { continue };
        let used = if device == LiveDevice::Tun { DeviceKind::Tun } else { DeviceKind::Packet };
        assert_eq!(outcome.device, used);
        let info = &outcome.data.run;
        assert_eq!(info["device"], if used == DeviceKind::Tun { "tun" } else { "packet" });
        let seen = fs::read_to_string(&file).expect("the program has written its file");
        fs::remove_file(&file).expect("the file can be removed");
        let mut names: Vec<&str> =
            seen.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
        names.sort_unstable();
        assert_eq!(names, ["lo", "skyhop0"]);
    }
}

/// Run `work` in a forked process as a user who cannot open /dev/net/tun.
fn with_tun_locked(work: impl FnOnce()) {
    // SAFETY: the child runs `work` and leaves through _exit.
    match unsafe { fork() }.expect("this process can fork") {
        ForkResult::Parent { child } => {
            let ended = waitpid(child, None).expect("the child can be waited for");
            assert!(matches!(ended, WaitStatus::Exited(_, 0)), "the child ended with {ended:?}");
        }
        ForkResult::Child => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                if lock_tun() {
                    work();
                }
            }));
            // SAFETY: _exit never returns and runs no exit handlers of the parent.
            unsafe { libc::_exit(if done.is_ok() { 0 } else { 101 }) }
        }
    }
}

/// Make /dev/net/tun inaccessible: as root, mount a file with mode 0600 over it in a private mount namespace, and
/// drop root. Return whether it cannot be opened.
fn lock_tun() -> bool {
    let tun = "/dev/net/tun";
    if geteuid().is_root() && fs::exists(tun).unwrap_or(false) {
        unshare(CloneFlags::CLONE_NEWNS).expect("root may");
        let (none, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
        mount(none, "/", none, private, none).expect("root may");
        let lock = scratch("lock");
        fs::write(&lock, "").expect("a file can be made");
        fs::set_permissions(&lock, Permissions::from_mode(0o600)).expect("it is ours");
        mount(Some(&lock), tun, none, MsFlags::MS_BIND, none).expect("root may");
        fs::remove_file(&lock).expect("it is ours");
    }
    if geteuid().is_root() {
        setgroups(&[]).expect("root may");
        let (nobody, no_group) = (Uid::from_raw(65_534), Gid::from_raw(65_534));
        setresgid(no_group, no_group, no_group).expect("root may");
        setresuid(nobody, nobody, nobody).expect("root may");
    }
    let locked = File::options().read(true).write(true).open(tun).is_err();
    if !locked {
        skyhop_needs::missing("root", "this user may open /dev/net/tun, and cannot lock it");
    }
    locked
}

#[test]
fn a_locked_tun_device_is_avoided_or_named_if_it_was_requested() {
    let mut experiment = fixed(ms(5), mbit(20), ms(500));
    experiment.flows.push(tcp(0, End::From, "reno", None));
    with_tun_locked(|| {
        experiment.device = LiveDevice::Auto;
        // If this fails too, the system does not allow live runs.
        let Some(outcome) = lab::run(&experiment) else { return };
        assert_eq!(outcome.device, DeviceKind::Packet);
        experiment.device = LiveDevice::Tun;
        let result = lab::live(&experiment, &LiveOptions::default(), &mut Unattended);
        let message = result.expect_err("it is locked").to_string();
        let works = "set live.device to \"auto\" or \"packet\", which works here";
        assert!(message.starts_with("/dev/net/tun") && message.contains(works), "{message}");
        assert!(!message.contains('\n'), "{message}");
    });
}
