r"""Words around a value: those that doubt, deny or take back, and those that only say where it is from.

Guarantees: closed lists in the normal form; what frames and courtesy say neither denies nor doubts. In the lists of
patterns each line is a part of one alternative.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sql_agent.offline_judge.lexicon import Lexicon
from sql_agent.offline_judge.words import PHRASES, phrases
from sql_agent.words.meanings import is_chinese_word, is_general, is_of_talk, is_person, is_plain_verb

DOUBTS_ZH = r"""
[?？]|\.\.|…|[或猜谣假谎疑]|还是|要么|可能|也许|没准|大[概致约]|恐怕|约[莫摸]|约(?=有?[\d#])|左右|上下|至少|至多|最多(?=[\d#])|起码
似乎|好像|像是|仿佛|难道|据说|听说|据传|传[说闻]|当真|(?<![没不])错|误|相反|相左|估[计摸]|推[测断]|应[该当]|不定|如果|假如|倘若|若是|其实
原[定本]|起初|实际|等等|[更纠改]正|抱歉|对不起|收回|作废|哦|但|不过|然而|却|虽|尽管|除非|除了|除#|#以?外
#[^#\d]{0,3}(?:[以之][上下内外前后]|前后)|# ?[^\W\d]?[多余](?!数)|否认|反对|同意|记得|印象|我想|认为|觉得|以为
吧|[哪岂]|介于|二者|两者|其中之一|另说|仅供|玩笑|[胡瞎]说|编的|虚构|几乎|[将接]近|(?<!最)近(?=[\d#])|不到|超过|[多少高低大小]于|有待|逾(?=[\d#])
看似|[看听]上?[起去]来?像|[查找]不到|没有?(?:记录|资料|提到|提及|找到|查到|信息|数据)|无[法从]|不[清知详]|撤销|矛盾|取消|看情况|难说|有时|未必|才怪|别信
反[之话]|多半|八成|十有八九|妄言|谬论|谎言|[谁鬼天]知道|天晓得|信不信
"""
DOUBTS_EN = r"""
or|above|below|before|after|either|one of|whether
may ?be|perhaps|possibl[ey]|probabl[ey]|presumabl[ey]|suppos\w*|alleged\w*|apparently
seeming\w*|conceivabl[ey]|likely|unlikely|might|may(?! \d)(?:(?<!\d may)|(?= [a-z]))|could
about|around|approximate\w*|approx|roughly|nearly|almost
circa|over|under|(?:more|less|fewer|other|rather) than|more or less|at (?:least|most)|between|somewhere|close to
(?<!add )(?<!adds )(?<!got )up to|unsure|uncertain|guess\w*|some say
estimate[sd]?|assum\w*|suspect\w*|thinks?|thought|believe\w*|reckon|imagin\w*|remember\w*|recall\w*|memory|opinion|seem\w*
appears? to|doubt\w*|unclear|unknown|rumou?r\w*|lies?|lying|liar|false|fake|myth|jok\w+|kidding|untrue|wrong\w*
incorrect\w*|inaccurate|mistake\w*|errors?|^wait|hm+|actually|sorry|apolog\w+|instead|rather|correction|scratch|ignor\w+
disregard|forget|retract\w*|except|versus|vs|unless|although|though|but|however|contrary|opposite|reverse|disagree\w*
den(?:y|ies|ied)|reject\w*|refuse\w*|hardly|barely|scarcely|far from|anything but|pretend\w*|hypothe\w+|alternatively
depends?|sometimes|invented|nonsense|ridiculous|if|quote me|not (?:know|say|sure|certain|find|mention)
by (?:the|an?) (?:teacher|student|pupil|assistant|son|daughter|wife|husband|brother|sister|mother|father) of(?= #)
(?:second|third|fourth|2nd|3rd|4th)[- ](?:most|least|\w+est)|(?:look|sound|taste|smell)s? like|like(?= #)|resembl\w*
(?:free|devoid) (?:of|from)|bet|wager|apart from|ma(?:de|king|ke) (?:it |this |that |these |all )up
(?<!is )(?<!are )(?<!was )(?<!were )(?<!be )used to|formerly|no longer
no (?:records?|information|data|entry|results?|mention|idea|clue)|get back to you
who knows|so-called
"""
HEARSAY = re.compile(  # of somebody, and of no source
    r"(?:[他她]们?的?|有人|网上?|网?友|人家|广告)[这那么样是都也]{0,3}[说讲传称]|所谓|[自号]称"
    r"|\b(?:he|she|they|people|some(?:one|body)?|others?|ads?) (?:sa(?:y|ys|id)|claim(?:s|ed)?|tells?|told|wrote)\b"
)
DENIALS = re.compile(
    r"[不没非无未否莫勿绝]|\b(?:no|not|never|none|neither|nor|cannot|nobody|nothing|nowhere|without|by no means)\b"
)
YES = re.compile(
    r"(?:yes|yeah|yep|true|correct|right|indeed|affirmative)(?![a-z])"
    r"|肯定的?|[没不]错|是(?:的|啊)?|对(?:的|啊)?|[还仍]?有(?:的)?|可以|确实|会的?|能"
)
NO = re.compile(
    r"(?![没不]错)(?:(?:no|nope|false|incorrect|negative)(?![a-z])"
    r"|不(?:是|对|可以|会|能|行)?的?|没(?:有)?|否(?:定)?|并[不非]|并没有|[还尚]未|还没有?|未|从来?(?:没有?|不)|无)"
)
TITLES = "mr mrs ms miss dr prof professor sir madam dame captain mx 先生 女士 小姐 教授 博士 医生 老师 经理 同志 太太"
FREE = """
the a an is are was were be been has have had does do did of in on at by to for with and there it its s this that they
them these those he she his her their who which what how many much when where here total altogether all as so from
namely following follows follow than i we you me my our us your found ve ll re m d can ca wo percent dollars euros
pounds $ € £ ¥ % ° c , . & ' =
"""
# Of a clause that tells no value, of a sentence around a quote: what it is and whence it is known, and courtesy.
TALK_EN = """
sure certainly yes okay ok course great thanks thank question asking happy glad help please note summary summarise
short brief conclusion overall result results output response data dataset table tables record records row rows column
query queries sql search lookup file list listed looking look looked checking check checked ran run running see seen
shown showing show shows says read tells tell told state states stated mention mentions mentioned indicates gives
returned returns retrieved retrieve
information clear clearly straightforward simple simply just only exactly precisely above below after having up order
ranked sorted answers final based stands reads one two three first second third hi now know well far still yet anymore
currently confirm confirmed determined queried relevant moment monday tuesday wednesday thursday friday saturday
sunday source sources got patience per summarize let back recorded find good given entry entries knowledge base go
understood asked point everything available requested in_that_order in_this_order as_follows excerpt extract passage
text wording quote quoted quotation verbatim word words written stored noted documented cell cells heading contents
located locate fetch fetched pull pulled getting executed execute successfully successful completed complete done
ready process request asks want wanted needed interested concerning regarding with_regard_to in_terms_of as_for
to_sum_up then finally also additionally moreover furthermore secondly firstly thirdly lastly directly direct straight
copied taken_from key_points main_points points overview covers cover summarised summarized outlined present presented
display displayed provide provided provides providing share shared report hey dear let_me let_us understand matching
matched named filter filtered schema tool system catalogue register leaflet page document connected inspected selected
using as_written as_is word_for_word in_full in_detail pleasure no_problem no_problem_at_all through quickly quick
title items part parts replying reply here_you_go there_you_go break_down gladly absolutely definitely indeed end
of_course hold hold_on one_moment a_moment thanks_for_waiting wait waiting apologies_for_the_delay sorry_for_the_wait
sorry_for_the_delay turning_to moving_on moving_on_to coming_to continuing consulted reading reviewed review reviewing
accessed access accessing taken can_be_summarised can_be_summarized as_stated as_recorded under_the_heading walk
used_the bit mentioned remaining concerns behalf addresses so_that this_one stored_for runs holds held says_the
got_this nothing_else_added pardon_me excuse_me sorry_about_that citing cited extracted ran_successfully
executed_successfully completed_successfully against_the_database this_reflects current_state comparison comparisons
compare compared differ differs difference differences main_difference main_differences similarity similarities
as_you_can_see aspect aspects both key_point above_is the_above reason reasons four five six described
"""
TALK_ZH = """
来源 信息 数据 知识库 知识 条目 词条 来源于 数据来源 来自 说明 说明书 官方 文档 网站 详情 细节 情况 这个 好问题 问题
1个 回复 解答 查询到 检索到 搜索 整理 整理好 汇总 列出 列举 列于 归纳 告诉 了解 想了解 知道 想知道 关心 咨询 询问 为您
给您 帮您 您的 您所 您 我 我们 我来 这里 这是 这些 这 一下 下面 下列 下述 以下是 如下所示 所示 具体来说 详细 简单
简单来说 简单地说 简而言之 简言之 总的来说 总体来说 总体而言 概括来说 好的 好 没问题 当然 当然可以 明白 明白了 很高兴
关于 对于 针对 至于 就 来说 而言 来看 相关 里 里面 记载的 记录的 的是 已 已经 现 将 被 到 了 在 从 中可 看到 看出 可知
得知 得到 资料里 该条目 本条 请看 请见 请查收 请参考 请参阅 这样 完成 引自 感谢 感谢提问 你的 查了 查询了 下 查到了
执行 执行了 运行 运行了 语句 表 表中 表里 的记录 表格 库 库里 表明 表示 可以 可 看 得出 找到 发现 返回 返回了 最终
最后 结论 清楚 很清楚 很 明确 按照 依照 依据 上 那么 那 那里 那天 他 她 他们 它们 这家店 该店 店里 这本书 该书 随时
欢迎 继续 提问 祝您生活愉快 需要 帮助 目前 当前 现在 如今 担任 次序 顺序 排序 排列 由大到小 由高到低 乃 所 于 尚 向 把
给 让 用 以 此 一共 达 达到 约定 找到了 我在 几个方面 几个 几点 要点 概括 概括为 归纳为 分为 逐条 列出来 栏 1栏 1列
这1列 单元格 全文 原话 原句 原样 摘录 摘自 出自 源自 转述 引用 引述 抄录 呈现 展示 给出 读取 读取到 读到 取到 定位
定位到 翻 搜 搜到 搜到了 调出 调取 匹配 匹配到 对应 对应的 直接 完整 收到 稍等 请稍等 让我 让我们 来 看看 先 再 再来看
接着 接下来 下来 随后 然后 您问 您问的 您问的是 您问到 您问到的 您提到 您提到的 提到 问到 您要的 您需要 所需 所需的
您查 您查询的 想查 这边 已经为您 查好 整理了 汇总了 总结了 成功 相应 啦 呀 哦 喔 哈 嗨 哈喽 各位 嗯 您的提问
感谢您的提问 提出 这儿 在这里 在下面 供您 供您参阅 参阅 谈到 说到 上述 上文 下文 文字 资料库 资料表 数据表 数据表明
资料表明 系统 依 另1项 第4 再次 最后1 这些内容 按原文 按照原文 逐字 根据您的 您所问 所问 方面的 整理自 节选 节选自
记录显示 资料显示 正文 段落 本段 段 部分 标题 标注 内置 结构化 本地 文件中 文件里 请注意 可以概括 可以概括为 可概括为
可以归纳 可以归纳为 这1问题 该问题 整理出 整理出了 1遍
可见 可以从 从以下几个方面 以下几个方面 是这样写的 这样写 库里 写的同样是 同样是
列名 确认 确认了 核对了 这么写 是这么写的 就写了 怎么写 写的 写的是 说完 念完 阅读 便于您 便于您阅读
回答之前 放在 完整地 段文字 刚才 1项 同1条 这1项 该项 点 未作改动 未作修改 未做改动 未做修改 出处 库内 库中 资料库中
您咨询的 您想了解的 您想知道的 您关心的 看1下 看1看 查1下 查阅到 查看 为了 有哪些 这段 这段文字 上面这段 下面这段 要的
需要的 1起 以当前数据库为准 注: 比较 对比如下 比较如下 区别 区别如下 主要区别 不同 不同点 相同点 有所不同 所不同 差异
差异如下 主要差异 异同 2者 2种 2个 2款 2种药 2种药物 2种药品 2种疾病 需要注意 需要注意的是 写明 明确写明 载明 注明
指出 希望这些 原因 理由 差别 对照 描述 大点 2药 2病
"""
TALK = f"{TALK_EN} {TALK_ZH}"
# Words of grammar, and of data, beside those that dictionaries tell.
GRAMMAR = """
any all each every another other others some such own one more most also very too again further among across till until
into onto upon within during through along because since when while whether once here everything something anything
whatever then next last first second third mine myself yourself ourselves why wherever per via besides therefore
hence thus enough same rest thing things set had just please under came come comes go goes went gone make makes made
making put puts try tried need needs use uses used give gives given continue continues add adds adding turn turns bring
brings brought contain contains ends end ended begin begins i s t tl dr ~ beyond after
几 每 对 过 得 还 出 逐 同 更 句 次 遍 自 之 些 地 只 要 请 后 取 列 行 止 什么
"""
DATA = """
subject subjects property properties attribute attributes finding findings key_facts particulars original line lines
object category entity match hit moment 关键 特性 话 内部 获取 档案 剩下 服务 荣幸 时间 1次 1遍 1句 1条 1行 1下 1提 每行
符合 条件 对象 注意 其余 介绍 命中 至此 为止 末了 紧接着 主体 类别 留意 1切 结构 余下 措施 科室 方案 步骤 综合 结合 归纳
此时 这时 分 期限 情形 要求 规定 办法 写法 供 用 按 据 目 表 库 行 最新 able 现有 属于 相比之下 至于
"""
# And of what follows the last quote: advice and offers.
CLOSING = """
contact visit healthcare professional professionals qualified service support staff team general informational
educational always personal specific situation circumstances case medical concern doubt unsure if like would wish hope
helps helped useful feel_free assist welcome nice day luck stay_safe stay_healthy take care best wishes individual or
anytime reach out do_not_hesitate only assistance unclear elaborate expand export spreadsheet sincerely cheers wishing
speedy recovery helpful emergency services number legal financial manufacturer seek decision decisions latest current
up_to_date date not_a_substitute_for substitute does_not_replace do_not_replace not_replace not_medical_advice
not_legal_advice not_professional_advice not_constitute not_intended diagnosis diagnosis_or_treatment judgement
judgment licensed else offered follow_ups drop clinician nurse gp care_team helpline hotline local authority authorities
office department hr not_hesitate shall questions_or_concerns you_may feel_free_to_ask handy save whenever visit_your
ai language_model substitute_for retrieves attention_if unwell
仅 仅供 仅供参考 友情提示 建议 遵医嘱 遵循 谨遵 如 如有 若 若有 如果 如果您 如需 还想 还需要 别的 更多 想 疑问 疑惑
任何 疑虑 不适 不清楚 不明白 不懂 不确定 吗 呢 帮 帮忙 您可以 联系 及时 尽快 务必 前往 专业 专业人士 人士 人员
专业人员 医院 正规医院 医疗 机构 客服 商家 厂家 售后 景区 学校 实际 最新 公布 希望 希望这 希望能 对你 能对您 祝您 祝你
健康 早日康复 生活愉快 愉快 顺利 感谢使用 你 高兴 乐意 进一步 解决 需要我 使用前 用药前 操作前 购买前 参观前 出行前
我可以 可以随时 可以继续 指导下使用 在医生指导下 及时就医 前请 或 相关部门 有关部门 主管部门 部门 主治医师 主治医生
法律 专业意见 医疗建议 医学建议 法律意见 投资建议 构成 不构成 并不构成 不能替代 不能代替 不可替代 无法代替 无法替代
替代 代替 不作为 不作 诊疗 面诊 决策 决定 判断 热线 厂商 生产厂家 出入 如有出入 规定 最新规定 正式文件 正式 说1声
能帮到您 帮到你 能帮上忙 帮上忙 是否需要 您是否需要 需不需要 要不要 可以吗 还需要我 顺便 展开 补充 祝好 祝 今天 工作
别客气 不客气 久等 见谅 包涵 全部 完毕 仅作 仅用于 用途 用于参考 个人情况 个体情况 具体用药 用药 具体操作 办理前 购买
使用 如有不适 尽管 尽管问 尽管告诉我 想看 换个 语言模型 交给 专业判断 一般参考 仅供1般参考 主管机关 机关 业务 办理
查询前 没有其他问题 1声 心情 生活 身体健康 平安 稍后 有需要 有需要就叫我 诊断和治疗 诊断或治疗 诊断与治疗 诊断及治疗
诊疗建议 专业医生的 专业医师 希望以上
"""
SOURCE = re.compile(
    r"^(?:(?:according to|based on|judging by|going by|per|from|looking at|after|as (?:per|far as|the)|in our|in the)\b"
    r"|[根依]据|[按依]照|通过(?:执行|运行|查询)|[按据从经查])"
)


def alternatives(text: str) -> list[str]:
    """The parts of a list whose lines and bars divide."""
    return [part for line in text.split("\n") for part in line.split("|") if part]


DOUBTS = re.compile(rf"{'|'.join(alternatives(DOUBTS_ZH))}|\b(?:{'|'.join(DOUBTS_EN.split(chr(10))[1:-1])})\b")
# Before a quote these permit it, or may.
PERMITS = frozenset(phrases("can could will would should ca wo ll d yes no only anymore yet 可 可以 需要 用 给 让"))
ABOUT = re.compile(  # a thing, and no number that follows; and what follows
    r"(?<![a-z])about(?![a-z])(?!(?: (?:the|an?|some))*\W*$)"
    r"|\b(?:listed|given|shown|described|set out|outlined|as|see) below\b"
    r"|\bbelow (?:is|are)\b|\bbelow\W*$|\babove (?:is|are|was|were)\b|\bbetween (?=the(?:se|m)? ?(?:two)?\W*$)"
    r"|\bunder(?! ?\W*\d)|^\W*below\b"
)
SEARCHES = "look up|check|search|fetch|find|get|show|list|retrieve|pull|query|know|hear|read|see|have|provide|give"
OFFER = re.compile(  # to look for something: what that is says nothing
    rf"(?:^|(?<=[.!\n;,]))\W*(?:(?:would|do) you (?:also )?(?:like|want|need)|shall i|should i|can i|want)"
    rf" ?(?:me )?(?:also )?(?:to )?(?:also )?(?:{SEARCHES})(?! (?:you )?(?:that|whether|why)\b)[^.?!\n;:]{{0,120}}\?"
    r"|(?:^|(?<=[。!\n;,]))(?:是否)?(?:还|您)*(?:需不需要|需要|要不要|是否要|想不想|想要?)(?:我|您)?[再也还顺便帮您你]*"
    r"(?:[查找搜看]|检索|了解|知道|列|调)[^。?!\n;:]{0,40}吗?\?"
)
MISSED = r"""(?:had|has|contained?|failed|was|used|hit|with|timed|returned|misspelled|mistyped|ran|into|out|in|a|an|it
    |the|of|small|minor|slight|wrong|error|mistake|typo|slip|incorrect|column|field|table|name|syntax|spelling|nothing)"""
FIRST = r"(?:first|earlier|previous|initial|original)\ (?:sql\ )?(?:query|attempt|search|statement|try|lookup|sql)"
FIRST_ZH = "(?:第1次|刚才|刚刚|之前|起初|最初|首次|前1次|先前|上次)的?(?:查询|检索|语句|尝试|搜索|sql)[时的]*"
FORMULAS = re.compile(  # that deny or doubt nothing of the thing
    rf"""\b(?:my|the|our)\ {FIRST}(?:\ {MISSED}\b)+|\b(?:sorry|apologi[sz]e|apologies|pardon)(?:\b,?\ (?=my\ {FIRST}\b)
    |\ (?:for|about)\ (?:the|my|any|this|that)\ (?:long\ )?(?:wait|delay|confusion|inconvenience|mix-up)\b)
    |(?:抱歉|不好意思|对不起)[;,]?(?=让?[您你](?:久等|等待|耽误)|{FIRST_ZH})|让?[您你](?:久等|等待|耽误)了?
    |{FIRST_ZH}(?:[写用拼查输选敲]错|[写拼]得有误|有误|出错|报错|失败|有(?:语法|拼写)错误)了?(?:字段|列|表|语句|语法|名称?|字)*
    |(?<!\w)tl; ?dr|\bin\ a\ nutshell\b|\blast\ but\ not\ least\b|\bon\ top\ of\ (?:that|this)\b|\bset\ out\ below\b
    |\babove\ all\b|\b(?:apart|aside)\ from\ (?:this|that)\b|\bbottom\ line\b|\b(?:keep|bear)\ in\ mind\b
    |\bheads-up\b|\bthat\ would\ be\b|(?<!\w)除(?:此|了这些|以上内容)之?以?外
    |\bno(?:thing)?\ (?:further|other|more(?!\ than)|additional|else|extra|beyond)\b
    |\b(?:no|not\ an?)\ (?:substitute|replacement)\ for\b
    |\bnot\ (?:be\ )?(?:taken|seen|read|regarded|meant|intended|understood|treated)\ as\b
    |不(?:能|可|应|宜)?(?:替代|代替|取代|构成|视为)|无法(?:替代|代替)|没有?(?:任何)?(?:更多|其[他它]|别的|另外|额外)的?
    |再?[无未]再?(?:其[他它]|更多|另)|未再|长话短说|1句话(?:总结|概括|来说|说)?|能[查找看]到
    |\b(?:can|could|may)\ (?:i|we)\b|\b(?:i|we)\ (?:can|could)\b|\byou\ ?(?:will|ll|can)\ (?:find|see|read)\b
    |\bafter\ (?=(?:that|this|which|an?|my|your|some|running|looking|checking|searching|reading)\b)
    |\bselect\ ?[\w ,.*]{{1,80}}?\ ?from\ \w+(?:\ where\ \w+\ ?=)?
    |(?<![a-z\d_])[a-z]+(?:_[a-z\d]+)+(?:(?=表|库|字段|列|的|中)|(?!\w)(?:\.\w+)?)""",
    re.VERBOSE,
)
PERSONAL = re.compile(r"\b(?:i|me|my|we|us|our|please|just|if you|should you|would you)\b|我|本人|请|祝|您")
SENDS = re.compile(  # to a person
    r"\b(?:ask|consult|contact|see|speak|talk|refer|turn|check with|reach|advice|questions?)\b"
    r"|请|咨询|询问|联系|向|就医|遵"
)
NUMBERED = re.compile(  # what counts the words around the quotes
    r"第\d{1,2}(?:[条次遍句行步点项]|个)?|(?<![\d.#-])\d{1,2}(?=条(?:\W|$))"
    r"|(?<![a-z\d.#-])\d{1,2}(?= ?[条次项个句行段]?(?:\w{2}的)?(?:相关|匹配)?(?:查询|记录|结果|要点|条目|说明|数据))"
    r"|(?<![a-z\d.#-])\d{1,2}(?= (?:[a-z]{4,9} )?(?:entr(?:y|ies)|quer(?:y|ies)"
    r"|(?:row|record|result|point|fact|item|hit|step|line|match|statement|detail|remark|lookup)(?:e?s)?)(?![a-z]))"
    r"|(?:(?<![a-z])(?:entry|row|record|result|point|fact|item|step|line|statement|detail|query|remark|note|part) ?"
    r"|要点|条目|记录|结果|事实|说明|内容|备注|步骤|部分|信息)\d{1,2}(?![\d.%a-z])"
)
CITES = re.compile(
    r"[、,\s]*(?:(?:数据|资料|信息)?来源|引自|出自|摘自|源自|source|as (?:stated|recorded|listed|given) in)"
    r"|,[^.?!\n,:]{4,60}:"
)
COMPARES = re.compile(r"区别|不同|差[异别]|比较|对比|怎么比|\b(?:differ\w*|compar\w*|contrast\w*)\b")
DIFFERS = re.compile(  # and says in what, not how
    r"\b(?:two|both|they|these|the)\b[^.]*\b(?:differ|is|are|have|has|offer|take|follow|work|come|go|get|act)[^.,;]*"
    r"(?:(?<=differ)|\b(?:quite |very |rather |clearly |completely |somewhat )?different(?:ly)?\b)"
    r"(?: (?:[a-z]+ ){0,3}(?:in|for|on|as to|by)\b[^;]*|(?: [a-z]+){1,3})?\W*$"
    r"|(?:[各都也]有?(?:所|些)?|有所|[^不])不同\W*$|有(?:一?些|很大|较大|明显)?(?:区别|差[异别])\W*$"
)
DEGREES = re.compile(r"\b(?:more|less|most|least|only|better|worse|safer|[a-z]{3,}er than)\b|[更较最只仅]|\d{2}|[3-9]")
UNIT = re.compile(r"[a-z]+|[\u4e00-\u9fff]+|\S")
LONGEST = 5  # characters of a Chinese word
_TALK, _DATA = {*phrases(TALK)} - PERMITS, {*phrases(DATA)}
AROUND = {*FREE.split(), *_TALK, *phrases(f"{GRAMMAR} {DATA} {PHRASES}"), "about"} - PERMITS
_FRAME, LAST = Lexicon(AROUND), Lexicon({*AROUND, *phrases(CLOSING)})
_WHOLE = " ".join(one for one in TALK.split() if "_" in one or not one.isascii())  # says nothing with what denies in it
_CHAT, _CLOSING = Lexicon(phrases(_WHOLE)), Lexicon(phrases(f"{_WHOLE} {CLOSING}"))


def is_frame(text: str, unknown: Sequence[tuple[int, int]], *, is_last: bool = False) -> bool:
    """Whether a text around a quote only says whence it is or, where no quote follows, closes; `unknown` is where its
    words of no list are."""
    chat, frame = (_CLOSING, LAST) if is_last else (_CHAT, _FRAME)
    text = OFFER.sub(lambda offer: " " * len(offer[0]), text) if is_last else text
    text = FORMULAS.sub(lambda said: " " * len(said[0]), text)
    strange = {place for start, end in frame.read(text)[1] for place in range(start, end)} - _dictionary(
        text, is_last=is_last
    )
    is_strange = any(place in strange and text[place] != " " for start, end in unknown for place in range(start, end))
    if is_strange or HEARSAY.search(text) or re.match(r"\W*(?:or(?![a-z])|或)", text):
        return False
    if is_last and strange and is_frame(text, unknown) is False:  # advice and offers tell nothing of what is asked
        return False
    text = ABOUT.sub(lambda found: " " * len(found[0]), text)
    for start, end, _ in reversed(chat.read(text)[0]):
        text = f"{text[:start]} {text[end:]}"
    text = re.sub("[^ -~]+", " ", text)  # in Chinese what is known may be a word that doubts
    return not DOUBTS.search(text) and not DENIALS.search(text)


def says_they_differ(text: str) -> bool:
    """Whether a sentence says that two things differ, and nothing of either."""
    said = text.replace("不同", "").replace("但", "")
    is_plain = not (DENIALS.search(said) or DEGREES.search(said) or DOUBTS.search(said.replace("2者", "")))
    return is_plain and DIFFERS.search(text) is not None


def _dictionary(text: str, *, is_last: bool) -> set[int]:
    """Where words are that dictionaries have as of talk, adjectives and adverbs before these, and numbers of these;
    where the speaker tells of himself, verbs of doing too, and in what closes persons whom one is sent to."""
    places = {place for found in NUMBERED.finditer(text) for place in range(*found.span())}
    is_personal = PERSONAL.search(text) is not None
    sends = is_last and SENDS.search(text) is not None
    leads = False  # to a word of talk
    for start, end in reversed([*words_of(text)]):
        word = text[start:end]
        is_sure = not DOUBTS.search(word) and not DENIALS.search(word) and word not in PERMITS
        is_talk = is_sure and (is_of_talk(word) or (sends and is_person(word)))
        qualifies = leads and is_general(word)
        if is_talk or (
            is_sure and (qualifies or (is_personal and is_plain_verb(word) and (len(word) > 1 or word.isascii())))
        ):
            places |= {*range(start, end)}
        leads = is_talk or word in _TALK or word in _DATA or (leads and word == "的") or qualifies
    return places


def words_of(text: str) -> Iterator[tuple[int, int]]:
    """Latin words, and of Chinese the longest ones at each place that a dictionary has."""
    for found in UNIT.finditer(text):
        start = found.start()
        while start < found.end():
            sizes = range(min(LONGEST, found.end() - start), 1, -1) if not found[0].isascii() else [len(found[0])]
            size = next((n for n in sizes if found[0].isascii() or is_chinese_word(text[start : start + n])), 1)
            yield start, start + size
            start += size
