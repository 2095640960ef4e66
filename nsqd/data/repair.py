"""``nsqd-data repair``: repairs all damage that recovery would repair or work around."""

from collections.abc import Iterator

from nsqd.data.examine import Finding, examine, index_is_usable
from nsqd.data.opened import DataPathRefused, OpenedDataPath, OpenedTopic
from nsqd.data.verify import of_topic
from nsqd.log import segment_index
from nsqd.log.disk import error_text
from nsqd.log.tail_records import CheckpointPosition


def repair(opened: OpenedDataPath, topic: str = "") -> Iterator[str]:
    """Repair topic after topic on the disk it was opened with; yields the damage.

    Raises DataPathRefused.
    """
    for name in opened.choose(topic):
        one = opened.topic(name)
        # Reported before anything of the topic is repaired.
        yield from list(of_topic(opened, one))
        try:
            _mend(opened, one)
        except OSError as error:
            raise DataPathRefused(f"TOPIC({name}): {error_text(error)}") from error
        if one.adopting and one.store.checkpoints.damaged:
            yield f"TOPIC({name}): the checkpoint is left alone, an adoption of disk queues is not finished"
        opened.release(name)


def _mend(opened: OpenedDataPath, one: OpenedTopic) -> None:
    """Repair one topic. Raises OSError."""
    disk, store = opened.disk, one.store
    for segment in store.segments:
        for finding in list(examine(disk, segment)):
            if finding.mend:
                _write_over(opened, finding)
        # The newest segment has no index, unless one was written when it was closed.
        wants_one = segment is not store.segments[-1] or segment.index_path.name in disk.names(segment.folder)
        if wants_one and not index_is_usable(disk, segment):
            segment_index.write(disk, segment)
    # An adoption reads the checkpoint to find its own progress.
    if store.checkpoints.damaged and not one.adopting:
        _write_checkpoints(opened, one)


def _write_over(opened: OpenedDataPath, finding: Finding) -> None:
    disk = opened.disk
    fd = disk.open_write(finding.path)
    try:
        disk.write_at(fd, finding.mend, finding.offset)
        disk.sync(fd)
    finally:
        disk.close(fd)


def _write_checkpoints(opened: OpenedDataPath, one: OpenedTopic) -> None:
    """Replace an unusable checkpoint by the state that recovery found.

    Both are written when neither can be used. If they were only removed, the next start would take the topic
    for one without checkpoints. It would then treat the missing beginning of the log as torn off by a power
    cut.
    """
    store = one.store
    covered = one.state.checkpoint_position if one.state is not None else CheckpointPosition()
    for _ in range(1 if one.state is not None else 2):
        job = store.checkpoints.start_job(
            one.topic, store.checkpoint_position(max(store.segments.end, covered.next))
        )
        job.run(opened.disk)
        store.checkpoints.end(job)
