"""Near duplicates, conditions and tags, what must not be deleted, and pictures that wait to be."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_SHA256 = sa.String(64)


def upgrade() -> None:
    op.add_column("cases", sa.Column("picture_hash", sa.BigInteger, nullable=True))
    op.add_column("cases", sa.Column("luminance", sa.Double, nullable=True))
    op.add_column("cases", sa.Column("contrast", sa.Double, nullable=True))
    op.add_column("cases", sa.Column("condition", sa.Text, nullable=True))
    op.add_column("cases", sa.Column("measured_gain", sa.Double, nullable=True))
    op.add_column("cases", sa.Column("near_frames", sa.Integer, nullable=False, server_default="0"))
    op.create_index("ix_cases_camera_captured_at", "cases", ["camera", "captured_at"])
    op.create_index("ix_cases_condition", "cases", ["condition"])
    op.create_table(
        "near_frames",
        sa.Column("id", _SHA256, nullable=False),
        sa.Column("case_id", _SHA256, nullable=False),
        sa.Column("camera", sa.Text, nullable=False),
        sa.Column("boot_id", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("captured_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_near_frames"),
        _of_case("near_frames", ondelete="CASCADE"),
    )
    op.create_index("ix_near_frames_case_id", "near_frames", ["case_id"])
    op.create_index(
        "ix_near_frames_camera_boot_id_sequence", "near_frames", ["camera", "boot_id", "sequence"]
    )
    op.create_table(
        "case_tags",
        sa.Column("case_id", _SHA256, nullable=False),
        sa.Column("tag", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("case_id", "tag", name="pk_case_tags"),
        _of_case("case_tags", ondelete="CASCADE"),
    )
    op.create_index("ix_case_tags_tag", "case_tags", ["tag"])
    op.create_table(
        "case_protections",
        sa.Column("case_id", _SHA256, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("since", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("case_id", "why", name="pk_case_protections"),
        _of_case("case_protections", ondelete="RESTRICT"),
    )
    op.create_index("ix_case_protections_why", "case_protections", ["why"])
    op.create_table(
        "doomed_pictures",
        sa.Column("path", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("path", name="pk_doomed_pictures"),
    )


def downgrade() -> None:
    for table in ("doomed_pictures", "case_protections", "case_tags", "near_frames"):
        op.drop_table(table)
    op.drop_index("ix_cases_condition", "cases")
    op.drop_index("ix_cases_camera_captured_at", "cases")
    for column in ("near_frames", "measured_gain", "condition", "contrast", "luminance", "picture_hash"):
        op.drop_column("cases", column)


def _of_case(table: str, ondelete: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name=f"fk_{table}_case_id", ondelete=ondelete)
