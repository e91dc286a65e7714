//! Latency from the announcement of a handover by the signal service to the ACK at which a module in the
//! kernel acts on it.
//!
//! The module SaTCP reports when it begins to hold its window, the service on its socket when it announces. One
//! connection at 150 Mbit/s over its own loopback device. Needs root and `ip`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration as WallDuration;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use skyhop_cc::Module;
use skyhop_host::ServiceControl;
use skyhop_kernel::{load, pinned_phases};
use skyhop_signal::schedule::HandoverGrid;
use skyhop_signal::{Timing, TimingError};
use skyhop_signald::{NamespaceChoice, ServiceOptions, ServiceSource, serve};
use skyhop_units::Duration;

const ANNOUNCEMENTS: usize = 1000;
const PERIOD: Duration = Duration::from_millis(20);
/// Pacing rate of the connection, the link rate of the scenarios, in bytes per second.
const PACING_RATE: u32 = 150_000_000 / 8;
/// Time that the connection needs to open its window.
const WARM_UP: WallDuration = WallDuration::from_secs(1);

fn main() -> io::Result<()> {
    if let Err(error) = separate() {
        println!("signal_latency: skipped: no namespaces of its own: {error}");
        return Ok(());
    }
    let satcp = Module::find("satcp").map_err(io::Error::other)?;
    let kernel_name = match load(satcp, &[]) {
        Ok(loaded) => loaded.kernel_name,
        Err(error) => {
            println!("signal_latency: skipped: {error}");
            return Ok(());
        }
    };
    // The pins vanish with this process's mount namespace.
    let phases = pinned_phases(&kernel_name).map_err(io::Error::other)?;
    let stop = AtomicBool::new(false);
    let (announced, holds) = thread::scope(|scope| {
        let sender = scope.spawn(|| send(&kernel_name, &stop));
        thread::sleep(WARM_UP);
        let announced = announce(&stop)?;
        stop.store(true, Ordering::Relaxed);
        sender.join().map_err(|_| io::Error::other("the sender panicked"))??;
        io::Result::Ok((announced, phases.read().map_err(io::Error::other)?))
    })?;
    let begins: Vec<u64> = holds.iter().map(|hold| hold.phase.begin_ns).collect();
    report(latencies_us(&announced, &begins), announced.len());
    Ok(())
}

/// Enter new mount and network namespaces with their own BPF file system, and a loopback device with an MTU of 1,500.
fn separate() -> io::Result<()> {
    let none: Option<&str> = None;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)?;
    mount(none, "/", none, private, none)?;
    mount(Some("bpf"), "/sys/fs/bpf", Some("bpf"), MsFlags::empty(), none)?;
    let loopback = ["link", "set", "lo", "mtu", "1500", "gso_max_segs", "2", "up"];
    let done = Command::new("ip").args(loopback).output()?;
    match done.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned())),
    }
}

/// Send as much as the pacing rate allows until `stop` is set.
fn send(cc: &str, stop: &AtomicBool) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut connection = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    set(&connection, libc::IPPROTO_TCP, libc::TCP_CONGESTION, cc.as_bytes())?;
    let rate = PACING_RATE.to_ne_bytes();
    set(&connection, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate)?;
    thread::scope(|scope| {
        let sink = scope.spawn(move || {
            let mut chunk = vec![0; 1 << 16];
            while far.read(&mut chunk)? > 0 {}
            io::Result::Ok(())
        });
        let chunk = vec![0; 1 << 14];
        while !stop.load(Ordering::Relaxed) {
            connection.write_all(&chunk)?;
        }
        drop(connection);
        sink.join().map_err(|_| io::Error::other("the sink panicked"))?
    })
}

fn set(socket: &TcpStream, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as `value` has, which lives for the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    Errno::result(done).map(|_| ()).map_err(io::Error::from)
}

/// Run the service; return the times of its announcements on `CLOCK_MONOTONIC`, ns.
fn announce(stop: &AtomicBool) -> io::Result<Vec<u64>> {
    let socket = std::env::temp_dir().join(format!("skyhop-latency-{}.sock", std::process::id()));
    let options = ServiceOptions {
        source: ServiceSource::Grid {
            grid: HandoverGrid { period: PERIOD, offset: Duration::ZERO },
            error: Duration::ZERO,
        },
        timing: Timing::new(Duration::ZERO, TimingError::None, 1),
        namespace: NamespaceChoice::Own,
        destination: None,
        socket: socket.clone(),
    };
    let heard_enough = AtomicBool::new(false);
    thread::scope(|scope| {
        let listener = scope.spawn(|| {
            let heard = listen(&socket);
            heard_enough.store(true, Ordering::Relaxed);
            heard
        });
        let mut control = Until { reached: &heard_enough, failed: stop };
        serve(&options, &mut control).map_err(io::Error::other)?;
        listener.join().map_err(|_| io::Error::other("the listener panicked"))?
    })
}

struct Until<'a> {
    reached: &'a AtomicBool,
    failed: &'a AtomicBool,
}

impl ServiceControl for Until<'_> {
    fn note(&mut self, _: &str) {}

    fn interrupted(&mut self) -> bool {
        self.reached.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }
}

fn listen(socket: &Path) -> io::Result<Vec<u64>> {
    let lines = BufReader::new(connect(socket)?).lines();
    let moments = lines.filter_map(|line| {
        let line: serde_json::Value = serde_json::from_str(&line.ok()?).ok()?;
        line["at_ns"].as_u64()
    });
    Ok(moments.take(ANNOUNCEMENTS).collect())
}

fn connect(socket: &Path) -> io::Result<UnixStream> {
    for _ in 0..100 {
        match UnixStream::connect(socket) {
            Ok(connection) => return Ok(connection),
            Err(_) => thread::sleep(WallDuration::from_millis(10)),
        }
    }
    UnixStream::connect(PathBuf::from(socket))
}

/// Latencies, µs, from each announcement to the first hold that begins after it and before the next announcement;
/// sorted.
fn latencies_us(announced: &[u64], begins: &[u64]) -> Vec<f64> {
    let mut latencies: Vec<f64> = announced
        .iter()
        .filter_map(|at| {
            let begin = begins.iter().find(|begin| *begin >= at)?;
            (begin - at < PERIOD.as_nanos()).then_some((begin - at) as f64 / 1e3)
        })
        .collect();
    latencies.sort_by(f64::total_cmp);
    latencies
}

fn report(latencies_us: Vec<f64>, announced: usize) {
    let quantile = |share: f64| {
        let place = (share * latencies_us.len().saturating_sub(1) as f64).round() as usize;
        latencies_us.get(place).copied().unwrap_or(f64::NAN)
    };
    println!(
        "announcement to the module's ACK: p50 {:.0} us, p99 {:.0} us, max {:.0} us ({} of {announced} announcements heard)",
        quantile(0.5),
        quantile(0.99),
        quantile(1.0),
        latencies_us.len(),
    );
}
