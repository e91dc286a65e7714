//! CPU time of transfers over a veth pair between two network namespaces.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::gettid;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 74, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 74, 0, 2);
const PORT: u16 = 5001;
const GIGABYTES: f64 = 2.0;
const PAIRS: usize = 12;
/// Quantile of Student's t-distribution with 11 degrees of freedom for a two-sided 95 % interval.
const STUDENT_11: f64 = 2.201;

/// Move this thread into a network namespace with a veth pair to another, in which a thread receives. Return false,
/// after printing the reason, if namespaces cannot be created.
pub fn open(bench: &str) -> io::Result<bool> {
    let (address, addresses): (Sender<()>, Receiver<()>) = mpsc::channel();
    let (id, ids): (Sender<i32>, Receiver<i32>) = mpsc::channel();
    thread::spawn(move || receive(&id, &addresses));
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        println!("{bench}: skipped: no network namespaces of its own: {error}");
        return Ok(false);
    }
    let server = ids.recv().map_err(io::Error::other)?;
    join(server)?;
    address.send(()).map_err(io::Error::other)?;
    Ok(true)
}

/// Create a veth pair from this thread's namespace to that of the thread `server`.
fn join(server: i32) -> io::Result<()> {
    let client = gettid().as_raw();
    ip(client, &format!("link add client type veth peer name server netns {server}"))?;
    ip(client, &format!("address add {CLIENT}/24 dev client"))?;
    ip(client, "link set client up")?;
    ip(server, &format!("address add {SERVER}/24 dev server"))?;
    ip(server, "link set server up")
}

/// Run `ip` in the namespace of a thread.
fn ip(thread: i32, arguments: &str) -> io::Result<()> {
    let namespace = format!("--net=/proc/{thread}/ns/net");
    let done = Command::new("nsenter")
        .args([namespace.as_str(), "ip"])
        .args(arguments.split(' '))
        .output()?;
    match done.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned())),
    }
}

fn receive(id: &Sender<i32>, ready: &Receiver<()>) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    id.send(gettid().as_raw()).map_err(io::Error::other)?;
    ready.recv().map_err(io::Error::other)?;
    let listener = TcpListener::bind(SocketAddrV4::new(SERVER, PORT))?;
    for connection in listener.incoming() {
        let mut connection = connection?;
        let mut chunk = vec![0; 1 << 20];
        while connection.read(&mut chunk)? > 0 {}
        connection.shutdown(Shutdown::Both)?;
    }
    Ok(())
}

/// Compare the CPU time of a module (`ours`) with a congestion control of the kernel, and prints the ratio.
pub fn compare(name: &str, kernels: &str, ours: &str) -> io::Result<()> {
    // Warm-up transfer, which is not measured.
    transfer(kernels)?;
    let mut ratios = Vec::new();
    let (mut kernels_s, mut ours_s) = (0.0, 0.0);
    for pair in 0..PAIRS {
        // The order alternates.
        let (kernel, own) = if pair % 2 == 0 {
            let kernel = transfer(kernels)?;
            (kernel, transfer(ours)?)
        } else {
            let own = transfer(ours)?;
            (transfer(kernels)?, own)
        };
        kernels_s += kernel / PAIRS as f64;
        ours_s += own / PAIRS as f64;
        ratios.push((own / kernel).ln());
    }
    let mean = ratios.iter().sum::<f64>() / PAIRS as f64;
    let variance = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>();
    let error = STUDENT_11 * (variance / (PAIRS as f64 - 1.0) / PAIRS as f64).sqrt();
    println!(
        "{name} {ours_s:.3} s of CPU per GB, the kernel's {kernels} {kernels_s:.3}: ratio {:.3} ({:.3} to {:.3}, 95 %)",
        mean.exp(),
        (mean - error).exp(),
        (mean + error).exp(),
    );
    Ok(())
}

/// Send with this congestion control; return the CPU time of both ends in s per GB, including kernel time.
fn transfer(cc: &str) -> io::Result<f64> {
    let connection = connect()?;
    choose(&connection, cc)?;
    let before = cpu_s()?;
    send(connection, (GIGABYTES * 1e9) as usize)?;
    Ok((cpu_s()? - before) / GIGABYTES)
}

/// Send `bytes` bytes and wait until they have arrived.
pub fn send(mut connection: TcpStream, bytes: usize) -> io::Result<()> {
    let chunk = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        left -= connection.write(&chunk[..left.min(chunk.len())])?;
    }
    connection.shutdown(Shutdown::Write)?;
    // The far end closes after it has received everything.
    connection.read_exact(&mut [0]).or_else(|error| match error.kind() {
        ErrorKind::UnexpectedEof => Ok(()),
        _ => Err(error),
    })
}

/// Connect to the far end, with retries.
pub fn connect() -> io::Result<TcpStream> {
    // The far end may not be listening yet, or the device may not be up.
    for _ in 0..100 {
        match TcpStream::connect(SocketAddrV4::new(SERVER, PORT)) {
            Ok(connection) => return Ok(connection),
            Err(_) => thread::sleep(std::time::Duration::from_millis(20)),
        }
    }
    TcpStream::connect(SocketAddrV4::new(SERVER, PORT))
}

/// Set the congestion control of a connection.
pub fn choose(connection: &TcpStream, cc: &str) -> io::Result<()> {
    set(connection, libc::IPPROTO_TCP, libc::TCP_CONGESTION, cc.as_bytes())
}

/// Set an option of a socket to raw bytes.
pub fn set(socket: &TcpStream, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
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

fn cpu_s() -> io::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}
