//! The lease directories as implemented by the kernel: which user may create, link, rename, unlink,
//! write and lock which file.
//!
//! Sources: path_resolution(7), unlink(2), rename(2), link(2), proc_sys_fs(5)
//! (`protected_hardlinks`) and fcntl(2) of the Linux man-pages.

/// A user.
pub(crate) type Uid = u8;
/// The ID of an entry, also used in its names.
pub(crate) type Id = u8;
/// The inode number of a file.
pub(crate) type Inode = u8;

/// The superuser.
pub(crate) const ROOT: Uid = 0;
/// The user that ignores all rules.
pub(crate) const STRANGER: Uid = 9;

/// A directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Dir {
    /// `/run/gpuws`: owned by root, mode 1777.
    Shared,
    /// `/run/gpuws/u<UID>`: owned by that user, mode 0755.
    Of(Uid),
    /// A directory of the stranger on the same file system that no claim reads.
    Elsewhere,
}

/// The name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Name {
    /// `queue/place-…-ID`
    Queue(Id),
    /// `try-ID`
    Try(Id),
    /// `lease-ID`
    Lease(Id),
    /// `kept-ID`
    Kept(Id),
    /// The table of the first version, mode 0666, empty.
    Table,
}

/// The content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Text {
    pub(crate) id: Id,
    pub(crate) ticket: u8,
    /// A bit per device.
    pub(crate) devices: u8,
    /// The memory of each device, in GiB.
    pub(crate) memory: u8,
    /// The lease that it was taken out of, and the owner of that lease.
    pub(crate) within: Option<(Id, Uid)>,
}

/// A file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct File {
    pub(crate) owner: Uid,
    /// Mode 0666; otherwise 0644.
    pub(crate) all_write: bool,
    pub(crate) text: Option<Text>,
    /// The author of the text. The kernel does not store it, but the properties depend on it.
    pub(crate) author: Uid,
    /// A bit per process that holds the write-locked open file.
    pub(crate) locked: u16,
}

/// All files and names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Dirs {
    files: Vec<Option<File>>,
    names: Vec<(Dir, Name, Inode)>,
    /// Directories of users that still have mode 0700 because of their creators' umask.
    closed: Vec<Uid>,
    /// Directories of users that do not exist yet.
    missing: Vec<Uid>,
    /// `fs.protected_hardlinks`
    protected_hardlinks: bool,
    /// The directories in which the current step has changed names, so that their modification
    /// times differ.
    changed: Vec<Dir>,
}

impl Dirs {
    pub(crate) fn new(protected_hardlinks: bool) -> Self {
        Dirs { protected_hardlinks, ..Dirs::default() }
    }

    /// Removes the directories of users.
    pub(crate) fn without(mut self, mut users: Vec<Uid>) -> Self {
        users.sort_unstable();
        users.dedup();
        self.missing = users;
        self
    }

    pub(crate) fn is_missing(&self, user: Uid) -> bool {
        self.missing.contains(&user)
    }

    pub(crate) fn is_closed(&self, user: Uid) -> bool {
        self.closed.contains(&user)
    }

    /// Creates a user's directory, with mode 0700.
    pub(crate) fn make_dir(&mut self, user: Uid) {
        self.missing.retain(|other| *other != user);
        self.closed.push(user);
        self.closed.sort_unstable();
    }

    /// Sets the mode of a user's directory to 0755.
    pub(crate) fn open_dir(&mut self, user: Uid) {
        self.closed.retain(|other| *other != user);
    }

    /// Returns whether a user may list a directory and open the files in it.
    pub(crate) fn may_read(&self, who: Uid, dir: Dir) -> bool {
        match dir {
            Dir::Of(owner) => who == owner || who == ROOT || !self.is_closed(owner),
            Dir::Shared | Dir::Elsewhere => true,
        }
    }

    pub(crate) fn file(&self, inode: Inode) -> Option<&File> {
        self.files.get(usize::from(inode))?.as_ref()
    }

    pub(crate) fn names(&self) -> &[(Dir, Name, Inode)] {
        &self.names
    }

    /// Returns the file with a name.
    pub(crate) fn at(&self, dir: Dir, name: Name) -> Option<Inode> {
        let found = self.names.iter().find(|(d, n, _)| (*d, *n) == (dir, name));
        found.map(|(_, _, inode)| *inode)
    }

    /// Returns the number of a file's names (`st_nlink`).
    pub(crate) fn links(&self, inode: Inode) -> usize {
        self.names.iter().filter(|(_, _, of)| *of == inode).count()
    }

    /// Returns whether any process holds the write lock.
    pub(crate) fn is_locked(&self, inode: Inode) -> bool {
        self.file(inode).is_some_and(|file| file.locked != 0)
    }

    fn may_add(who: Uid, dir: Dir) -> bool {
        who == ROOT
            || match dir {
                Dir::Shared => true,
                Dir::Of(owner) => owner == who,
                Dir::Elsewhere => who == STRANGER,
            }
    }

    /// With the sticky bit, only the owner of a file and the owner of the directory, which is root,
    /// may remove its name.
    fn may_remove(&self, who: Uid, dir: Dir, inode: Inode) -> bool {
        let own = self.file(inode).is_some_and(|file| file.owner == who);
        Self::may_add(who, dir) && (dir != Dir::Shared || own || who == ROOT)
    }

    fn may_write(&self, who: Uid, inode: Inode) -> bool {
        self.file(inode).is_some_and(|file| file.owner == who || who == ROOT || file.all_write)
    }

    /// Returns the directories that have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<Dir> {
        std::mem::take(&mut self.changed)
    }

    fn add(&mut self, dir: Dir, name: Name, inode: Inode) {
        self.changed.push(dir);
        let index = self.names.partition_point(|other| *other < (dir, name, inode));
        self.names.insert(index, (dir, name, inode));
    }

    fn drop_name(&mut self, dir: Dir, name: Name) -> Option<Inode> {
        let index = self.names.iter().position(|(d, n, _)| (*d, *n) == (dir, name))?;
        let (_, _, inode) = self.names.remove(index);
        self.changed.push(dir);
        self.forget(inode);
        Some(inode)
    }

    /// Removes a file that has no names and no holders.
    fn forget(&mut self, inode: Inode) {
        if self.links(inode) == 0 && !self.is_locked(inode) {
            self.files[usize::from(inode)] = None;
        }
    }

    /// Creates a file; false if the kernel refuses. Operations under a name that no claim reads
    /// (write, lock, `fchmod`, rename) are one step. A previous file with this inode number loses
    /// the names that a stranger gave it elsewhere, because no claim reads them.
    pub(crate) fn create(
        &mut self,
        who: Uid,
        dir: Dir,
        name: Name,
        inode: Inode,
        file: File,
    ) -> bool {
        if !Self::may_add(who, dir) || self.at(dir, name).is_some() {
            return false;
        }
        self.names.retain(|(_, _, of)| *of != inode);
        let index = usize::from(inode);
        if self.files.len() <= index {
            self.files.resize(index + 1, None);
        }
        self.files[index] = Some(file);
        self.add(dir, name, inode);
        true
    }

    pub(crate) fn link(&mut self, who: Uid, inode: Inode, dir: Dir, name: Name) -> bool {
        let Some(file) = self.file(inode) else { return false };
        let source = !self.protected_hardlinks
            || file.owner == who
            || who == ROOT
            || self.may_write(who, inode);
        if !source || !Self::may_add(who, dir) || self.at(dir, name).is_some() {
            return false;
        }
        self.add(dir, name, inode);
        true
    }

    /// Renames a file, with `RENAME_NOREPLACE`.
    pub(crate) fn rename(&mut self, who: Uid, from: (Dir, Name), to: (Dir, Name)) -> bool {
        let Some(inode) = self.at(from.0, from.1) else { return false };
        if !self.may_remove(who, from.0, inode)
            || !Self::may_add(who, to.0)
            || self.at(to.0, to.1).is_some()
        {
            return false;
        }
        self.names.retain(|(dir, name, _)| (*dir, *name) != from);
        self.changed.push(from.0);
        self.add(to.0, to.1, inode);
        true
    }

    pub(crate) fn unlink(&mut self, who: Uid, dir: Dir, name: Name) -> bool {
        let Some(inode) = self.at(dir, name) else { return false };
        self.may_remove(who, dir, inode) && self.drop_name(dir, name).is_some()
    }

    pub(crate) fn write(&mut self, who: Uid, inode: Inode, text: Text) -> bool {
        if !self.may_write(who, inode) {
            return false;
        }
        let Some(file) = self.files[usize::from(inode)].as_mut() else { return false };
        (file.text, file.author) = (Some(text), who);
        true
    }

    /// Takes the write lock for a process, which requires a descriptor open for writing.
    pub(crate) fn lock(&mut self, who: Uid, inode: Inode, process: u16) -> bool {
        if !self.may_write(who, inode) || self.is_locked(inode) {
            return false;
        }
        let Some(file) = self.files[usize::from(inode)].as_mut() else { return false };
        file.locked = process;
        true
    }

    /// Makes a process inherit the locked open file of another.
    pub(crate) fn inherit(&mut self, inode: Inode, process: u16) {
        if let Some(Some(file)) = self.files.get_mut(usize::from(inode)) {
            file.locked |= process;
        }
    }

    /// Unlocks an open file for all its holders.
    pub(crate) fn unlock(&mut self, inode: Inode) {
        if let Some(Some(file)) = self.files.get_mut(usize::from(inode)) {
            file.locked = 0;
        }
        if self.file(inode).is_some() {
            self.forget(inode);
        }
    }

    /// Removes a holder's mark without the other effects of its end.
    pub(crate) fn release(&mut self, inode: Inode) {
        if let Some(Some(file)) = self.files.get_mut(usize::from(inode)) {
            file.locked = 0;
        }
    }

    /// Ends a process: the kernel closes all of its files at once.
    pub(crate) fn end(&mut self, process: u16) {
        for inode in 0..self.files.len() {
            if let Some(file) = self.files[inode].as_mut() {
                file.locked &= !process;
                self.forget(inode as Inode);
            }
        }
    }
}
