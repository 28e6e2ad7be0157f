//! Random faults: they hit any process, at any point.

use super::{
    processes::{self, Janitor, Kind},
    pushers::Field,
    rng::Rng,
};
use crate::support::{
    needs::{Need, lacks},
    text, try_signal,
};
use std::{
    fs,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// A small separate file system for the fence, if possible.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    pub(crate) fn below(fence: PathBuf) -> Option<SmallDisk> {
        if lacks(&[Need::Mount]) {
            println!("the disk is never full");
            return None;
        }
        let saved: Vec<_> = fs::read_dir(&fence).unwrap().map(|entry| entry.unwrap().path()).collect();
        let saved: Vec<_> = saved.into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"]).arg(&fence).output().unwrap();
        assert!(mount.status.success(), "{}", text(&mount.stderr));
        saved.into_iter().for_each(|(content, path)| fs::write(path, content).unwrap());
        Some(SmallDisk(fence))
    }

    /// The disk is full for a while.
    fn fill(&self, time: Duration) {
        let filler = self.0.join("filler");
        if let Ok(mut file) = fs::File::create(&filler) {
            let _ = std::io::copy(&mut std::io::Read::take(std::io::repeat(0), 1 << 30), &mut file);
        }
        thread::sleep(time);
        fs::remove_file(filler).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// The server is restarted after that many pushes.
const RESTART_EVERY: u64 = 60;

/// Injects faults until the pushes are over.
pub(crate) fn strike(field: &Field<'_>, disk: Option<&SmallDisk>, over: &AtomicBool) -> Janitor {
    let mut rng = Rng::new(field.seed, 1000);
    let mut janitor = Janitor::default();
    let mut asleep: Vec<(u32, Instant)> = Vec::new();
    let dir = field.world.path(".");
    let mut next = Instant::now();
    let mut restart_at = field.left.load(Ordering::SeqCst).saturating_sub(RESTART_EVERY);
    while !over.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(20));
        let now = Instant::now();
        let awake = asleep.extract_if(.., |(_, until)| *until <= now);
        awake.for_each(|(pid, _)| wake(pid));
        janitor.sweep(&dir);
        if now < next {
            continue;
        }
        next = now + Duration::from_millis(rng.between(50, 500));
        if field.left.load(Ordering::SeqCst) < restart_at {
            restart_at = restart_at.saturating_sub(RESTART_EVERY);
            restart(field, &mut asleep, &mut janitor);
        }
        match rng.between(0, 60) {
            0..3 => {
                if let Some(disk) = disk {
                    disk.fill(Duration::from_millis(rng.between(50, 400)));
                    field.count("disk full");
                }
            }
            n => {
                let kinds = [
                    (Kind::ReceivePack, "receive-pack"),
                    (Kind::Hook, "hook"),
                    (Kind::Hook, "hook"),
                    (Kind::Client, "client"),
                    (Kind::Writer, "local writer"),
                    (Kind::Heartbeat, "heartbeat"),
                    (Kind::Run, "run"),
                    (Kind::Keeper, "keeper"),
                ];
                let (kind, name) = rng.pick(&kinds);
                let (kills, which, time) = (n % 3 == 0, rng.next(), rng.between(20, 800));
                let found: Vec<_> = processes::below(&dir).into_iter().filter(|p| p.kind == kind).collect();
                let Some(process) = found.get(which as usize % found.len().max(1)) else { continue };
                if kills && try_signal(process.pid, "KILL") {
                    field.count(&format!("kill {name} at random"));
                } else if !kills && try_signal(process.pid, "STOP") {
                    field.count(&format!("stop {name} at random"));
                    asleep.push((process.pid, now + Duration::from_millis(time)));
                }
            }
        }
    }
    asleep.into_iter().for_each(|(pid, _)| wake(pid));
    janitor
}

fn wake(pid: u32) {
    let _ = try_signal(pid, "CONT");
}

/// The server goes down with everything in flight, and comes up again.
fn restart(field: &Field<'_>, asleep: &mut Vec<(u32, Instant)>, janitor: &mut Janitor) {
    let dir = field.world.path(".");
    for process in processes::below(&dir).into_iter().filter(|process| process.of_server) {
        try_signal(process.pid, "KILL");
    }
    asleep.drain(..).for_each(|(pid, _)| wake(pid));
    // No process starts until all existing ones are gone.
    let _closed = field.door.write().unwrap();
    janitor.sweep(&dir);
    field.count("restart of the server");
}
